//! How frames cross the border between per-CPU lists and a zone: one choice for the whole yard, changeable while it runs.

use crate::units::named;

/// How frames cross the border between per-CPU lists and a zone, and when free blocks are merged.
///
/// A value of the configuration ([`YardConfig::policy`](crate::YardConfig::policy)) that
/// [`Yard::set_policy`](crate::Yard::set_policy) changes at any time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum ZonePolicy {
    /// Merges on every free. A refill takes page by page under the zone lock; a drain picks its pages before it takes the
    /// lock, and reads ahead what merging will look at. After the kernel from 4.17 on (`free_pcppages_bulk`, `rmqueue_bulk`).
    Vanilla = 0,
    /// As [`Vanilla`](Self::Vanilla), but a drain picks its pages under the lock, reads nothing ahead, and frees each by
    /// itself. After the kernel up to 4.16.
    Vanilla416 = 1,
    /// A single frame that a drain frees does not merge: it goes to the head of its list with a mark. Compaction merges
    /// marked frames when it meets them. Applies as long as compaction has not failed in the zone and is not at work.
    SkipMerge = 2,
    /// As [`SkipMerge`](Self::SkipMerge), and single frames on a free list belong to clusters of neighbours on the list. A
    /// refill cuts whole clusters off, and clears the pages' state when it has given the lock back.
    Cluster = 3,
    /// As [`Cluster`](Self::Cluster), and a drain of one batch of one type goes in as one cluster.
    ClusterBulk = 4,
    /// As [`Vanilla`](Self::Vanilla) with per-CPU lists so large that the zone is hardly visited: batch 10922, high 65532.
    BigPcp = 5,
    /// As [`Vanilla`](Self::Vanilla), and a refill prefetches the next page of a list while it takes this one.
    Prefetch = 6,
    /// As [`Vanilla`](Self::Vanilla), and a refill prefetches the pages of a list before it takes the lock.
    PrefetchBeforeLock = 7,
    /// As [`Vanilla`](Self::Vanilla), but refills and drains take and drop the lock for each page.
    LockPerPage = 8,
    /// CPUs own whole pageblocks, and split and merge them under locks of their own. What is freed goes back to the owner of
    /// its pageblock, whichever CPU frees it.
    OwnedBlocks = 9,
    /// Batches move between CPUs on lock-free stacks, whole; the zone is visited when these run dry, and they are merged
    /// when large blocks run low. What a new yard begins with.
    #[default]
    Depot = 10,
}

named!(ZonePolicy:
    Vanilla => "vanilla", Vanilla416 => "vanilla-4.16", SkipMerge => "skip-merge", Cluster => "cluster",
    ClusterBulk => "cluster-bulk", BigPcp => "big-pcp", Prefetch => "prefetch",
    PrefetchBeforeLock => "prefetch-before-lock", LockPerPage => "lock-per-page", OwnedBlocks => "owned-blocks",
    Depot => "depot");

impl ZonePolicy {
    /// The policy of that number; [`Vanilla`](Self::Vanilla) where there is none.
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self::ALL.into_iter().find(|policy| *policy as u32 == bits).unwrap_or(Self::Vanilla)
    }
}

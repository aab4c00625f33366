//! Policies: how free frames are kept, how batches move between them and the per-CPU lists, which pageblock serves a
//! request, and how large the per-CPU lists are. A yard has one policy for all zones.
//!
//! A policy is a name for three values ([`Parts`]): one for the [store](crate::store), one for the
//! [placement](crate::placement), and one for the [lists](crate::lists). Each of these modules interprets only its own
//! value.

use crate::units::named;

/// How batches move between per-CPU lists and a zone, and when free blocks merge.
///
/// Set in the configuration ([`YardConfig::policy`](crate::YardConfig::policy)).
/// [`Yard::set_policy`](crate::Yard::set_policy) changes it at any time, unless the old or the new policy [keeps free
/// frames as bits](Self::keeps_bits). A build without the feature `published` has only [`Vanilla`](Self::Vanilla) of
/// the policies with free lists, and returns an error for the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
#[non_exhaustive]
pub enum ZonePolicy {
    /// A buddy allocator that merges on every free. A refill takes page by page under the zone lock. A drain picks its
    /// pages before it takes the lock, reads ahead what merging will read at every order, and frees neighbouring pages
    /// as one block. This is more than the kernel does; the kernel's drain is [`Vanilla417`](Self::Vanilla417).
    Vanilla = 0,
    /// As [`Vanilla`](Self::Vanilla), but a drain picks its pages under the lock, reads nothing ahead, and frees each
    /// page by itself. This is what the kernel did up to 4.16.
    Vanilla416 = 1,
    /// A single frame that a drain frees is not merged: it goes to the head of its free list with a mark. Compaction
    /// merges the marked frames that it meets. Merging is skipped only while no compaction has failed or is running in
    /// the zone.
    SkipMerge = 2,
    /// As [`SkipMerge`](Self::SkipMerge), and neighbouring single frames on a free list form clusters. A refill
    /// detaches whole clusters, and clears the state of their pages after it has dropped the lock.
    Cluster = 3,
    /// As [`Cluster`](Self::Cluster), and a drained batch of one type is spliced into the list as one cluster.
    ClusterBulk = 4,
    /// As [`Vanilla`](Self::Vanilla), with per-CPU lists so large that refills and drains are rare: batch 10922, high
    /// 65532.
    BigPcp = 5,
    /// As [`Vanilla`](Self::Vanilla), and a refill prefetches the next page of a list while it takes the current one.
    Prefetch = 6,
    /// As [`Vanilla`](Self::Vanilla), and a refill prefetches the pages of a list before it takes the lock.
    PrefetchBeforeLock = 7,
    /// As [`Vanilla`](Self::Vanilla), but refills and drains take and drop the lock for each page.
    LockPerPage = 8,
    /// As [`Vanilla`](Self::Vanilla), but a drain reads ahead only the first buddy of each page, and frees each page by
    /// itself. This is what the kernel does from 4.17 on (`free_pcppages_bulk`).
    Vanilla417 = 9,
    /// The default. Free frames are bits: the 512 bits of a pageblock fill one cache line. A refill takes up to 64
    /// frames with one exchange, a free sets a bit, nothing needs to merge, and page structures are not touched.
    /// Refills take from the fullest pageblocks first. A yard cannot change to or from this policy.
    #[default]
    Bits = 10,
    /// As [`Bits`](Self::Bits), but with LLFree's placement: a CPU takes blocks of a type from one tree of four
    /// neighbouring pageblocks until nothing there fits, and pageblocks are not emptied. While the yard keeps [regions
    /// clean](crate::boot::CleanRegions), this policy behaves like [`Bits`](Self::Bits).
    BitsTrees = 11,
}

named!(ZonePolicy:
    Vanilla => "vanilla", Vanilla416 => "vanilla-4.16", SkipMerge => "skip-merge", Cluster => "cluster",
    ClusterBulk => "cluster-bulk", BigPcp => "big-pcp", Prefetch => "prefetch",
    PrefetchBeforeLock => "prefetch-before-lock", LockPerPage => "lock-per-page",
    Vanilla417 => "vanilla-4.17", Bits => "bits", BitsTrees => "bits-trees");

/// What a policy is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) placement: PlacementRule,
    pub(crate) lists: ListSizes,
}

/// Where free frames rest that are on no list of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Store {
    /// As bits of their pageblocks.
    Bits,
    /// On free lists with merging buddies.
    Buddy(Transfer),
}

/// How batches move between the lists of CPUs and free lists. All but the first are [published](crate::store::published) ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transfer {
    /// One hold of the zone lock per refill or drain. A drain reads ahead what merging will read.
    Batched,
    /// As `Batched`; a drain picks its blocks under the lock, reads nothing ahead and frees each by itself.
    PickUnderLock,
    /// As `Batched`; a drain reads ahead the first buddies of its blocks and frees each by itself.
    FirstBuddies,
    /// As `Batched`; a refill prefetches the next page of a list while it takes the current one.
    PrefetchNext,
    /// As `Batched`; a refill prefetches the pages of a list before it takes the lock.
    PrefetchBeforeLock,
    /// One hold of the lock per page.
    LockPerPage,
    /// Single pages that a drain frees merge later.
    DeferredMerge,
    /// As `DeferredMerge`, and neighbours on a free list move together; drained pages join clusters page by page.
    Clusters,
    /// As `Clusters`; several clusters move at once, and a drained batch goes in as one cluster.
    ClusterBatches,
}

/// Which pageblock serves a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlacementRule {
    /// That of the first block on a free list.
    FirstListed,
    /// The fullest that has a block of the order.
    Fullest,
    /// One of the CPU's tree.
    Tree,
}

/// How large the lists of CPUs are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListSizes {
    /// As the yard [sizes](crate::zone::pcp_sizing) them.
    OfYard,
    /// So large that refills and drains are rare.
    Big,
}

impl Parts {
    const fn bits(placement: PlacementRule) -> Self {
        Self { store: Store::Bits, placement, lists: ListSizes::OfYard }
    }

    const fn buddy(transfer: Transfer, lists: ListSizes) -> Self {
        Self { store: Store::Buddy(transfer), placement: PlacementRule::FirstListed, lists }
    }
}

impl ZonePolicy {
    /// What it is made of.
    pub(crate) const fn parts(self) -> Parts {
        match self {
            Self::Vanilla => Parts::buddy(Transfer::Batched, ListSizes::OfYard),
            Self::Vanilla416 => Parts::buddy(Transfer::PickUnderLock, ListSizes::OfYard),
            Self::Vanilla417 => Parts::buddy(Transfer::FirstBuddies, ListSizes::OfYard),
            Self::Prefetch => Parts::buddy(Transfer::PrefetchNext, ListSizes::OfYard),
            Self::PrefetchBeforeLock => Parts::buddy(Transfer::PrefetchBeforeLock, ListSizes::OfYard),
            Self::LockPerPage => Parts::buddy(Transfer::LockPerPage, ListSizes::OfYard),
            Self::SkipMerge => Parts::buddy(Transfer::DeferredMerge, ListSizes::OfYard),
            Self::Cluster => Parts::buddy(Transfer::Clusters, ListSizes::OfYard),
            Self::ClusterBulk => Parts::buddy(Transfer::ClusterBatches, ListSizes::OfYard),
            Self::BigPcp => Parts::buddy(Transfer::Batched, ListSizes::Big),
            Self::Bits => Parts::bits(PlacementRule::Fullest),
            Self::BitsTrees => Parts::bits(PlacementRule::Tree),
        }
    }

    /// Whether this build has it.
    pub(crate) const fn is_built(self) -> bool {
        cfg!(feature = "published") || matches!(self, Self::Vanilla) || self.keeps_bits()
    }

    /// The policies that a yard in use can change between: those that keep free frames on free lists.
    pub const CHANGEABLE: [Self; Self::Bits as usize] = match Self::ALL.first_chunk() {
        Some(changeable) => *changeable,
        None => panic!("there are that many"),
    };

    /// Whether free frames are bits of their pageblock. This is decided when a yard is created.
    #[must_use]
    #[inline(always)]
    pub const fn keeps_bits(self) -> bool {
        self as u32 >= Self::Bits as u32
    }

    /// Whether it is one of [`CHANGEABLE`](Self::CHANGEABLE).
    #[must_use]
    pub const fn is_changeable(self) -> bool {
        !self.keeps_bits()
    }

    /// The policy of that number; [`Vanilla`](Self::Vanilla) if there is none.
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self::ALL.get(bits as usize).copied().unwrap_or(Self::Vanilla)
    }
}

const _: () = {
    let mut at = 0;
    while at < ZonePolicy::ALL.len() {
        assert!(
            ZonePolicy::ALL[at] as usize == at,
            "in the order of their numbers, which `from_bits` and `CHANGEABLE` rely on"
        );
        at += 1;
    }
};

//! Reclaim: giving up clean pages of files, the ones not used for longest first.
//!
//! Inactive lists of files are scanned from their ends, up to 32 pages under one acquisition of their lock. A page that was
//! used since it was last looked at gets a second chance; dirty ones become active, as the kernel's do when reclaim may
//! not write; what is in use just now stays. The rest is taken off and dropped. When a node has too few inactive pages,
//! active lists are aged. All shards of a node are scanned, each in proportion to what it has, whatever the policy.
//!
//! Pages of spaces have nowhere to go. The background reclaimer ages them in passing, so that their lists tell which are in
//! use; who reclaims for an allocation leaves them alone. They are counted, as all that reclaim comes upon and cannot drop.
//!
//! - `scan`: one pass over a node's lists;
//! - `ageing`: pages of spaces, by the bits of use in their entries;
//! - `background`: the background reclaimer's steps.
//!
//! # Bounds
//!
//! A pass with priority *p* looks at the `2^-p`th part of the lists, and *p* falls from 12 to 0 (the kernel's
//! `do_try_to_free_pages`): so a caller looks at each list about twice, and then hears that there is nothing to be had.

use frameyard::owners::{ReclaimRequest, Reclaimer};
use frameyard::units::ZoneKind;
use frameyard::{NodeId, PageCount, Platform};

use crate::counters::VmCounter;
use crate::vm::Vm;

mod ageing;
mod background;
mod scan;
#[cfg(test)]
mod tests;

pub use background::ReclaimStep;
use scan::Scan;

/// The priority that a pass begins with (`DEF_PRIORITY`).
const FIRST_PRIORITY: u32 = 12;
/// How many pages are wanted at least, and are worked on at once (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;

/// On whose behalf pages are reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    /// An allocation that found nothing.
    Direct,
    /// A node's background reclaimer.
    Background,
}

impl Caller {
    const fn scanned(self) -> VmCounter {
        match self {
            Self::Direct => VmCounter::PgscanDirect,
            Self::Background => VmCounter::PgscanKswapd,
        }
    }

    const fn dropped(self) -> VmCounter {
        match self {
            Self::Direct => VmCounter::PgstealDirect,
            Self::Background => VmCounter::PgstealKswapd,
        }
    }
}

impl<P: Platform> Vm<'_, P> {
    /// The nodes, the preferred one first.
    fn nodes_from(&self, first: NodeId) -> impl Iterator<Item = NodeId> {
        let nodes = self.yard().nodes();
        (0..nodes).map(move |n| NodeId((first.0 % nodes + n) % nodes))
    }

    /// Drops clean pages of files until as many as wanted are free, or nothing is left to look at; how many were freed.
    ///
    /// After the kernel's `try_to_free_pages`. Looks at each list about twice at the most. Takes no lock that it waits for
    /// but those of lists, briefly; files that are locked are passed over.
    pub fn reclaim_pages(&self, node: NodeId, highest_zone: ZoneKind, wanted: PageCount) -> PageCount {
        self.count(VmCounter::Allocstall, 1);
        self.lru_drain();
        let mut freed = PageCount(0);
        for priority in (0..=FIRST_PRIORITY).rev() {
            if priority == 0 {
                // What others have just brought is not on any list yet.
                self.lru_drain_all();
            }
            for node in self.nodes_from(node) {
                let scan =
                    Scan { caller: Caller::Direct, node, highest_zone, priority, wanted: wanted - freed, most: None };
                freed += self.shrink_node(&scan).freed;
                if freed >= wanted {
                    return freed;
                }
            }
        }
        freed
    }
}

impl<P: Platform> Reclaimer for Vm<'_, P> {
    fn reclaim(&self, request: ReclaimRequest) -> PageCount {
        let wanted = request.wanted.0.max(CLUSTER).max(request.order.pages().0);
        self.reclaim_pages(request.node, request.highest_zone, PageCount(wanted))
    }
}

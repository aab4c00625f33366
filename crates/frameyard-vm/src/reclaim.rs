//! Reclaim: drops clean pages of files, the least recently used first.
//!
//! Reclaim scans inactive file lists from their ends, up to 32 pages per acquisition of their lock. A page used since
//! its last scan gets a second chance. Dirty pages become active, as in the kernel when reclaim may not write. Pages in
//! use stay. All other pages are isolated and dropped. If a node has too few inactive pages, active lists are aged.
//! Reclaim scans all shards of a node in proportion to their sizes, whatever the policy.
//!
//! Pages of spaces have no backing store. Background reclaim ages them, so that their lists show which are in use.
//! Direct reclaim skips them. Both count all pages that they cannot drop.
//!
//! - `scan`: one pass over a node's lists
//! - `ageing`: pages of spaces, by the accessed bits of their entries
//! - `background`: the steps of the background reclaimer
//!
//! # Bounds
//!
//! A pass with priority *p* scans the `2^-p`th part of the lists, and *p* falls from 12 to 0 (the kernel's
//! `do_try_to_free_pages`). A caller therefore scans each list about twice before it gets an error.

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

/// The priority of the first pass (`DEF_PRIORITY`).
const FIRST_PRIORITY: u32 = 12;
/// The smallest target, and the number of pages processed at once (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;

/// The caller of reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    /// An allocation that found no memory.
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

    /// Drops clean file pages until `wanted` pages are free or all lists have been scanned, and returns how many it
    /// freed.
    ///
    /// It scans each list at most about twice. It waits only for locks of lists, which are held briefly, and skips
    /// locked files. Modelled on the kernel's `try_to_free_pages`.
    pub fn reclaim_pages(&self, node: NodeId, highest_zone: ZoneKind, wanted: PageCount) -> PageCount {
        self.count(VmCounter::Allocstall, 1);
        self.lru_drain();
        let mut freed = PageCount(0);
        for priority in (0..=FIRST_PRIORITY).rev() {
            if priority == 0 {
                // Drain first: pages just read in are on no list yet.
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

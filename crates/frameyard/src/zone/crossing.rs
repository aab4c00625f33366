//! The border between per-CPU lists and the zone: what a batch of blocks does to cross it, by [`ZonePolicy`].
//!
//! A refill asks [`fetch`] for blocks, a drain hands its blocks to a [`GivingBack`]. Both are called with the lock of a
//! CPU's lists held, and read the policy under it. So once the policy was changed and every CPU's lists were locked once,
//! nothing crosses in the old way any more; that is how [`Yard::set_policy`](crate::Yard::set_policy) changes it.
//!
//! Each way of crossing has a file of its own: [`pages`] goes to the free lists page by page; [`depot`] keeps full batches
//! on lock-free stacks, to which lists have a way of their own, past [`fetch`] and [`GivingBack`].

use super::{BlockRequest, LockedZone, ZonePolicy, ZoneView};
use crate::platform::Platform;
use crate::sync::AtomicU32;
use crate::units::{CpuId, Order};
use crate::zone::pcp::packed::BATCH;

pub(crate) mod depot;
mod pages;
mod suspension;

pub(crate) use suspension::{CutStalled, Suspension};

/// What is in progress at the border of a zone.
#[derive(Default)]
pub(crate) struct CrossingState {
    /// How many [`Suspension`]s there are; changed under the zone lock.
    suspensions: AtomicU32,
    /// How many cuts are in progress: raised under the zone lock, lowered without.
    cuts: AtomicU32,
    depot: depot::DepotState,
}

/// Up to one batch of blocks of one order on their way, by their places in the map.
pub(crate) struct Picked {
    pub(crate) entries: [u32; BATCH],
    pub(crate) len: usize,
}

impl Picked {
    pub(crate) fn none() -> Self {
        Self { entries: [0; BATCH], len: 0 }
    }

    pub(crate) fn one(entry: u32) -> Self {
        let mut picked = Self::none();
        picked.push(entry);
        picked
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, entry: u32) {
        self.entries[self.len] = entry;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn entries(&self) -> &[u32] {
        &self.entries[..self.len]
    }
}

/// Fetches up to `wanted` blocks for a CPU's list and gives them to `deliver` a batch at a time, tagged as blocks of
/// per-CPU lists, in the order in which they are to be handed out. How many there were.
///
/// Fewer than `wanted` where the zone has no more, or the policy fetches less at once. The caller holds the lock of the
/// lists of `cpu`.
pub(crate) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    wanted: usize,
    deliver: impl FnMut(&Picked),
) -> usize {
    let _ = cpu;
    match view.zone.policy() {
        ZonePolicy::Vanilla | ZonePolicy::BigPcp => pages::fetch(view, request, wanted, deliver),
        _ => pages::fetch(view, request, wanted, deliver),
    }
}

/// Why blocks leave a CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaving {
    /// A list is over its limit.
    Overflow,
    /// The lists are emptied: the blocks are wanted on the free lists, merged.
    Emptying,
}

/// Blocks of one CPU's lists on their way to the zone. What it holds of the zone it gives up when dropped.
pub(crate) struct GivingBack<'a, P: Platform> {
    view: ZoneView<'a, P>,
    policy: ZonePolicy,
    cpu: CpuId,
    why: Leaving,
    locked: Option<LockedZone<'a, P>>,
}

impl<'a, P: Platform> GivingBack<'a, P> {
    /// The caller holds the lock of the lists of `cpu` as long as this lives.
    pub(crate) fn new(view: ZoneView<'a, P>, cpu: CpuId, why: Leaving) -> Self {
        Self { view, policy: view.zone.policy(), cpu, why, locked: None }
    }

    /// Gives blocks back. They are tagged as blocks of per-CPU lists.
    pub(crate) fn give(&mut self, picked: &Picked, order: Order) {
        let _ = (self.cpu, self.why);
        match self.policy {
            ZonePolicy::Vanilla | ZonePolicy::BigPcp => pages::give_back(&mut self.locked, self.view, picked, order),
            _ => pages::give_back(&mut self.locked, self.view, picked, order),
        }
    }
}

/// Brings what is kept between the lists of CPUs and the free lists back to the free lists, merged.
///
/// # Errors
///
/// [`CutStalled`] where somebody else has some of it in his hands after a bounded wait.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>) -> Result<(), CutStalled> {
    depot::collect(view)
}

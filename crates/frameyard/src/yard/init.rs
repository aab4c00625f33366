//! Bringing up what is left of the memory map while the yard is in use.

use super::Yard;
use crate::boot::{Grain, Growth, InitError, InitMode, PcpReset};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::units::{NodeId, Order, PageCount, PfnRange, ZoneId, ZoneKind};
use crate::zone::{Fallback, RangeBlocked, Zone};

/// How often who needs memory that others are initialising looks again, before it goes without. Each look is a round
/// of [`Platform::relax`], which yields and then sleeps; initialising a section takes well under a millisecond.
pub(super) const WAIT_ROUNDS: u32 = if cfg!(loom) { 3 } else { 4096 };

/// The same for requests that may not sleep ([`Gfp::DIRECT_RECLAIM`](crate::Gfp::DIRECT_RECLAIM) is not set): as many as
/// pause or yield.
pub(super) const SHORT_WAIT_ROUNDS: u32 = if cfg!(loom) { 2 } else { 32 };

impl<P: Platform> Yard<P> {
    /// Brings up all that is left of the memory map, in parallel, then sizes watermarks, reserves and (unless told
    /// otherwise) per-CPU lists by the memory that is there now.
    ///
    /// For a yard created as [`InitMode::Deferred`], once its CPUs are up, and for one that was
    /// [`InitMode::Lazy`] so far. Others may allocate and free meanwhile. In a yard that is up completely, only sizes
    /// anew, by the options of the yard's creation, whatever [`retune`](Self::retune) has set since. After the kernel's
    /// `page_alloc_init_late`. Takes zone locks for as long as a section has blocks.
    ///
    /// # Errors
    ///
    /// [`InitError`]: the yard goes on with what was initialised.
    pub fn finish_init(&self) -> Result<(), InitError> {
        let tuning = self.tuning.ok_or(InitError::NotTheCreator)?;
        let passed = self.bring_up().pass(self.map_init.jobs, Grain::Section).map_err(InitError::from);
        let passed = passed.and_then(|()| self.wait_for_others());
        // Whatever came up counts, even if not all did.
        let sizing = (self.map_init.pcp_reset == PcpReset::On).then_some(tuning.sizing);
        let tuned = self.tables.set_watermarks(self.geometry, &tuning.watermarks);
        debug_assert!(tuned.is_ok(), "the options were good when the yard was created");
        if let Some(sizing) = sizing {
            self.tables.size_pcps(&self.platform, self.geometry, sizing);
        }
        passed
    }

    /// Sees to it that what others had begun when a pass came by is up, too; waits for a bounded time.
    fn wait_for_others(&self) -> Result<(), InitError> {
        for (at, zone) in self.tables.zones.iter().enumerate() {
            let mut round = 0;
            while zone.deferred.pages_racy().0 > 0 {
                // They may give it up.
                match self.bring_up().grow(ZoneId(at as u16)) {
                    Growth::NotBacked(range) => return Err(InitError::MapNotBacked(range)),
                    Growth::InProgress if !self.wait(zone, &mut round, WAIT_ROUNDS) => {
                        match zone.deferred.pages_racy() {
                            PageCount(0) => break,
                            left => return Err(InitError::Unfinished(left)),
                        }
                    }
                    Growth::InProgress | Growth::Grew | Growth::Exhausted => {}
                }
            }
        }
        Ok(())
    }

    /// Waits a moment for who initialises memory of a zone. `false` where it was long enough, for the caller or for
    /// somebody before him since whom nothing has happened.
    fn wait(&self, zone: &Zone, round: &mut u32, rounds: u32) -> bool {
        if *round == WAIT_ROUNDS {
            zone.deferred.set_stalled();
        }
        if zone.deferred.is_stalled() || *round >= rounds {
            return false;
        }
        self.platform.relax(*round);
        *round += 1;
        true
    }

    /// Frames that are still to be initialised and freed, a moment ago.
    pub fn uninitialised_pages(&self) -> PageCount {
        self.tables.zones.iter().map(|zone| zone.deferred.pages_racy()).sum()
    }

    /// When the memory map comes up.
    pub fn init_mode(&self) -> InitMode {
        self.map_init.mode
    }

    /// Brings up one more section of a node, its highest zone first: for workers that have nothing else to do. How many
    /// frames are left to initialise on the node afterwards; `None` where there were none, or no such node.
    ///
    /// Where all that is left is with others, does nothing and says how much it is: what they do not bring up (because
    /// they panicked) stays left for ever, so who sees the same number again and again waits in vain.
    ///
    /// # Errors
    ///
    /// [`InitError::MapNotBacked`] where there is no memory for all that is left and not with others.
    pub fn initialise_next(&self, node: NodeId) -> Result<Option<PageCount>, InitError> {
        if node.0 >= self.nodes() {
            return Ok(None);
        }
        let zones = || ZoneKind::ALL.into_iter().rev().map(move |kind| ZoneId::new(node, kind));
        let left = || zones().map(|id| self.tables.zones[id.index()].deferred.pages_racy()).sum();
        let (mut not_backed, mut in_progress) = (None, false);
        for id in zones() {
            match self.bring_up().grow(id) {
                Growth::Grew => return Ok(Some(left())),
                Growth::InProgress => in_progress = true,
                Growth::NotBacked(range) => not_backed = not_backed.or(Some(range)),
                Growth::Exhausted => {}
            }
        }
        match not_backed {
            Some(range) => Err(InitError::MapNotBacked(range)),
            None => Ok(in_progress.then(left)),
        }
    }

    /// Brings up the maximum-order blocks that a range of frames touches; how many frames became free.
    ///
    /// # Errors
    ///
    /// [`InitError::OutsideMap`], or [`InitError::AlreadyInitialised`] where some of them are up or claimed: nothing
    /// has changed then, unless others initialise the same range at the same time. [`InitError::MapNotBacked`]: the
    /// sections before those frames are up.
    ///
    /// # Cost
    ///
    /// Writes 64 bytes for each frame of those blocks; takes a zone lock once for each section and zone.
    pub fn initialise(&self, range: PfnRange) -> Result<PageCount, InitError> {
        let bring_up = self.bring_up();
        if range.is_empty() || self.map.range().intersection(range) != range {
            return Err(InitError::OutsideMap(range));
        }
        if let Some(absent) = bring_up.sections_in(range).find(|part| !bring_up.entry_of(part.start).is_present()) {
            return Err(InitError::OutsideMap(bring_up.section_of(absent.start)));
        }
        let max_order = self.geometry.max_order();
        let mut block = PfnRange::new(range.start.align_down(max_order), max_order.pages());
        while block.start < range.end {
            if !bring_up.claims().has_unclaimed_racy(block) {
                return Err(InitError::AlreadyInitialised(block));
            }
            block = PfnRange::new(block.end, max_order.pages());
        }
        let brought = bring_up.bring_up_sections(range);
        match brought.not_backed {
            Some(range) => Err(InitError::MapNotBacked(range)),
            None => Ok(brought.freed),
        }
    }

    /// Initialises more of a zone, section by section, until `take` finds something, or there is no more to be had.
    ///
    /// Whoever needs memory that somebody else is initialising waits for it, holding nothing, for a bounded time: so
    /// many rounds.
    #[cold]
    #[inline(never)]
    pub(super) fn grow_and_retry<T>(
        &self,
        id: ZoneId,
        (order, rounds): (Order, u32),
        above_watermark: impl Fn() -> bool,
        take: impl Fn(bool, Fallback) -> Option<T>,
    ) -> Option<T> {
        let zone = &self.tables.zones[id.index()];
        let mut round = 0;
        while zone.deferred.pages_racy().0 > 0 {
            let above = above_watermark();
            // Where pending memory counts as free, having more of it on the lists lifts no watermark.
            if zone.deferred.is_counted() && !above {
                return None;
            }
            if above && zone.deferred.highest_order_racy().is_none_or(|highest| highest < order) {
                break;
            }
            match self.bring_up().grow(id) {
                Growth::Grew => {}
                Growth::InProgress if self.wait(zone, &mut round, rounds) => {}
                Growth::InProgress | Growth::Exhausted | Growth::NotBacked(_) => break,
            }
            if let Some(taken) = take(above_watermark(), Fallback::AfterGrowth) {
                return Some(taken);
            }
        }
        take(above_watermark(), Fallback::Allowed)
    }

    /// Takes a range whose pages are initialised. Waits, for a bounded time, while free memory of it is on its way to
    /// the free lists.
    pub(super) fn take_initialised(
        &self,
        zone: ZoneId,
        take: impl Fn() -> Result<(), RangeBlocked>,
    ) -> Result<(), RangeBlocked> {
        let pending = &self.tables.zones[zone.index()].deferred;
        for round in 0..WAIT_ROUNDS {
            let on_its_way = pending.pages_racy().0 > 0;
            match take() {
                Err(blocked) if on_its_way && blocked.state == FrameState::Interior => self.platform.relax(round),
                taken => return taken,
            }
        }
        take()
    }

    /// Sees to it that all memory of a range is initialised; waits for whoever is at it, for a bounded time. `false`
    /// where there is no memory for its page structures, or waiting was in vain.
    pub(super) fn ensure_initialised(&self, range: PfnRange) -> bool {
        for round in 0..WAIT_ROUNDS {
            if self.is_initialised(range) {
                return true;
            }
            if self.bring_up().bring_up_sections(range).not_backed.is_some() {
                return false;
            }
            if round > 0 {
                self.platform.relax(round - 1);
            }
        }
        self.is_initialised(range)
    }

    /// Whether all memory of a range is initialised.
    fn is_initialised(&self, range: PfnRange) -> bool {
        let blocks = self.pageblocks();
        self.tables.ranges_in(range).all(|(memory, _)| {
            let mut at = blocks.start_of(memory.start);
            while at < memory.end {
                if !blocks.has_memory(at) {
                    return false;
                }
                at = at + blocks.pages();
            }
            true
        })
    }
}

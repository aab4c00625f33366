//! Initialising deferred memory while the yard is in use.

use super::{Yard, YardInit};
use crate::boot::{Grain, Growth, InitError, InitMode, PcpReset};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::units::{NodeId, Order, PageCount, PfnRange, ZoneId, ZoneKind};
use crate::zone::{Fallback, RangeBlocked, Zone};

/// How many rounds a request waits for memory that another CPU initialises. Each round is a call of
/// [`Platform::relax`], which yields and then sleeps; initialising a section takes well under a millisecond.
pub(super) const WAIT_ROUNDS: u32 = if cfg!(loom) { 3 } else { 4096 };

/// The same for requests that may not sleep ([`Gfp::DIRECT_RECLAIM`](crate::Gfp::DIRECT_RECLAIM) is not set): the
/// rounds in which `relax` pauses or yields.
pub(super) const SHORT_WAIT_ROUNDS: u32 = if cfg!(loom) { 2 } else { 32 };

impl<P: Platform> Yard<P> {
    /// Waits, with a bound, until the parts that other CPUs had begun are initialised, too.
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

    /// Waits one round for CPUs that initialise memory of a zone. `false` when the bound is reached, or when an earlier
    /// caller reached it and there was no progress since.
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

    /// Initialises more of a zone, section by section, until `take` succeeds or nothing is left.
    ///
    /// Where another CPU initialises the missing memory, the request waits for it: `rounds` rounds, holding no lock.
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
            // Where deferred memory counts as free, having more of it on the lists lifts no watermark.
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
        let deferred = &self.tables.zones[zone.index()].deferred;
        for round in 0..WAIT_ROUNDS {
            let on_its_way = deferred.pages_racy().0 > 0;
            match take() {
                Err(blocked) if on_its_way && blocked.state == FrameState::Interior => self.platform.relax(round),
                taken => return taken,
            }
        }
        take()
    }

    /// Initialises all memory of a range, and waits with a bound for CPUs that initialise parts of it. `false` where
    /// the platform has no memory for the page structures, or the bound is reached.
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
        self.tables.ranges_in(range).all(|(memory, _)| blocks.starts_in(memory).all(|at| blocks.has_memory(at)))
    }
}

impl<'y, P: Platform> YardInit<'y, P> {
    /// Initialises all deferred memory, in parallel, then sizes watermarks, reserves and (by default) per-CPU lists by
    /// the memory of the yard.
    ///
    /// For a yard created as [`InitMode::Deferred`], once its CPUs are up, and for one that was [`InitMode::Lazy`] so
    /// far. Other threads may allocate and free meanwhile. In a yard without deferred memory the call only sizes anew,
    /// by the options of the yard's creation: earlier calls of [`retune`](super::YardLists::retune) have no effect on
    /// it. After the kernel's `page_alloc_init_late`. Takes the zone lock once per section.
    ///
    /// # Errors
    ///
    /// [`InitError`]: the initialised part of the yard stays in use.
    pub fn finish(self) -> Result<(), InitError> {
        let yard = self.yard;
        let tuning = yard.tuning.ok_or(InitError::NotTheCreator)?;
        let passed = yard.bring_up().pass(yard.map_init.jobs, Grain::Section).and_then(|()| yard.wait_for_others());
        // The initialised part counts, even after an error.
        let sizing = (yard.map_init.pcp_reset == PcpReset::On).then_some(tuning.sizing);
        let tuned = yard.tables.set_watermarks(yard.geometry, &tuning.watermarks);
        debug_assert!(tuned.is_ok(), "the options were good when the yard was created");
        if let Some(sizing) = sizing {
            yard.tables.size_pcps(&yard.platform, yard.geometry, sizing);
        }
        passed
    }

    /// Frames that are still deferred: neither initialised nor free. Recent, not exact.
    pub fn deferred_pages(self) -> PageCount {
        self.yard.tables.zones.iter().map(|zone| zone.deferred.pages_racy()).sum()
    }

    /// When the memory map is initialised.
    pub fn mode(self) -> InitMode {
        self.yard.map_init.mode
    }

    /// Initialises the next deferred section of a node, highest zone first, for idle workers. Returns the deferred
    /// frames of the node afterwards; `None` where there were none, or no such node.
    ///
    /// Where other CPUs have claimed all of them, the call does nothing and returns their number. A number that never
    /// changes means that a worker panicked: its part stays deferred.
    ///
    /// # Errors
    ///
    /// [`InitError::MapNotBacked`] where the platform has no memory for the page structures of all unclaimed sections.
    pub fn next_section(self, node: NodeId) -> Result<Option<PageCount>, InitError> {
        let yard = self.yard;
        if node.0 >= yard.nodes() {
            return Ok(None);
        }
        let zones = || ZoneKind::ALL.into_iter().rev().map(move |kind| ZoneId::new(node, kind));
        let left = || zones().map(|id| yard.tables.zones[id.index()].deferred.pages_racy()).sum();
        let (mut not_backed, mut in_progress) = (None, false);
        for id in zones() {
            match yard.bring_up().grow(id) {
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

    /// Initialises the maximum-order blocks that a range of frames touches; returns the frames that became free.
    ///
    /// # Errors
    ///
    /// [`InitError::OutsideMap`], or [`InitError::AlreadyInitialised`] where some of them are initialised or claimed:
    /// nothing has changed then, unless another thread initialises the same range at the same time.
    /// [`InitError::MapNotBacked`]: the sections before those frames are initialised.
    ///
    /// # Cost
    ///
    /// Writes 64 bytes for each frame of those blocks. Takes a zone lock once for each section and zone.
    pub fn range(self, range: PfnRange) -> Result<PageCount, InitError> {
        let yard = self.yard;
        let bring_up = yard.bring_up();
        if range.is_empty() || yard.map.range().intersection(range) != range {
            return Err(InitError::OutsideMap(range));
        }
        if let Some(absent) = bring_up.sections_in(range).find(|part| !bring_up.entry_of(part.start).is_present()) {
            return Err(InitError::OutsideMap(bring_up.section_of(absent.start)));
        }
        let max_order = yard.geometry.max_order();
        let mut block = PfnRange::new(range.start.align_down(max_order), max_order.pages());
        while block.start < range.end {
            if !bring_up.claims().has_unclaimed_racy(block) {
                return Err(InitError::AlreadyInitialised(block));
            }
            block = PfnRange::new(block.end, max_order.pages());
        }
        let result = bring_up.bring_up_sections(range);
        match result.not_backed {
            Some(range) => Err(InitError::MapNotBacked(range)),
            None => Ok(result.freed),
        }
    }
}

//! Initialising deferred memory while the yard is in use.

use core::cell::Cell;

use crate::boot::{Grain, Growth, InitError, InitMode, PcpReset};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::store::buddy::RangeBlocked;
use crate::units::{NodeId, Order, PageCount, PfnRange, ZoneId, ZoneKind};
use crate::yard::{Yard, YardInit};
use crate::zone::{Effort, Fallback, Patience, Zone};

impl<P: Platform> Yard<P> {
    /// Waits, with a bound, until other CPUs have initialised the parts that they claimed.
    fn wait_for_claimed_parts(&self) -> Result<(), InitError> {
        for (at, zone) in self.tables.zones.iter().enumerate() {
            let (round, mut grown) = (Cell::new(0), 0);
            while zone.deferred.pages_racy().0 > 0 {
                // Another CPU may give up its claim.
                match self.initialisation().grow(ZoneId(at as u16)) {
                    // Another process undoes it.
                    Growth::Grew if grown == self.most_growths() => {
                        return Err(InitError::Unfinished(zone.deferred.pages_racy()));
                    }
                    Growth::Grew => grown += 1,
                    Growth::NotBacked(range) => return Err(InitError::MapNotBacked(range)),
                    Growth::InProgress if !self.wait(zone, &round, Patience::Sleeps) => {
                        match zone.deferred.pages_racy() {
                            PageCount(0) => break,
                            left => return Err(InitError::Unfinished(left)),
                        }
                    }
                    Growth::InProgress | Growth::Exhausted => {}
                }
            }
        }
        Ok(())
    }

    /// How often memory can be initialised before nothing is left: blocks of the maximum order are claimed.
    fn most_growths(&self) -> u64 {
        self.map.places() >> self.geometry.max_order().0
    }

    /// Waits one round for CPUs that initialise memory of a zone. Returns `false` when the caller reaches the bound, or
    /// when an earlier caller reached it and nothing was initialised since.
    fn wait(&self, zone: &Zone, round: &Cell<u32>, patience: Patience) -> bool {
        if round.get() == Patience::Sleeps.rounds() {
            zone.deferred.set_stalled();
        }
        if zone.deferred.is_stalled() || round.get() >= patience.rounds() {
            return false;
        }
        patience.wait(&self.platform, round.get());
        round.set(round.get() + 1);
        true
    }

    /// Initialises more of a zone, section by section, until `take` succeeds or nothing is left.
    ///
    /// If another CPU initialises the missing memory, the request waits for it, with a bound, without a lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow_and_retry<T>(
        &self,
        id: ZoneId,
        (order, effort): (Order, &Effort),
        above_watermark: impl Fn() -> bool,
        take: impl Fn(bool, Fallback) -> Option<T>,
    ) -> Option<T> {
        let zone = &self.tables.zones[id.index()];
        let slept = Cell::new(0);
        let round = match effort.patience {
            Patience::Spins => &effort.spins,
            Patience::Sleeps => &slept,
        };
        let mut grown = 0;
        while zone.deferred.pages_racy().0 > 0 {
            let above = above_watermark();
            // If deferred memory counts as free, initialising it does not raise the free count above a watermark.
            if zone.deferred.is_counted() && !above {
                return None;
            }
            if above && zone.deferred.highest_order_racy().is_none_or(|highest| highest < order) {
                break;
            }
            match self.initialisation().grow(id) {
                Growth::Grew if grown < self.most_growths() => grown += 1,
                Growth::InProgress if self.wait(zone, round, effort.patience) => {}
                Growth::Grew | Growth::InProgress | Growth::Exhausted | Growth::NotBacked(_) => break,
            }
            if let Some(taken) = take(above_watermark(), Fallback::AfterGrowth) {
                return Some(taken);
            }
        }
        take(above_watermark(), Fallback::Allowed)
    }

    /// Takes a range whose pages are initialised. Waits, with a bound, while free memory of the range is in transit to the
    /// free lists: no head covers it meanwhile, so it looks like frames of per-CPU lists without tags. The caller has drained those.
    pub(crate) fn take_initialised(
        &self,
        zone: ZoneId,
        patience: Patience,
        take: impl Fn() -> Result<(), RangeBlocked>,
    ) -> Result<(), RangeBlocked> {
        let deferred = &self.tables.zones[zone.index()].deferred;
        for round in 0..patience.rounds() {
            let in_transit = deferred.pages_racy().0 > 0;
            match take() {
                Err(RangeBlocked { state: FrameState::Interior | FrameState::PerCpu, .. }) if in_transit => {
                    patience.wait(&self.platform, round);
                }
                taken => return taken,
            }
        }
        take()
    }

    /// Initialises all memory of a range, and waits with a bound for CPUs that initialise parts of it. Returns `false` if
    /// the platform has no memory for the page structures, or at the bound.
    pub(crate) fn ensure_initialised(&self, range: PfnRange, patience: Patience) -> bool {
        for round in 0..patience.rounds() {
            if self.is_initialised(range) {
                return true;
            }
            if self.initialisation().initialise_sections(range).not_backed.is_some() {
                return false;
            }
            if round > 0 {
                patience.wait(&self.platform, round - 1);
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
    /// Initialises all deferred memory in parallel. Then sizes watermarks, reserves and (by default) per-CPU lists for
    /// all memory of the yard. Modelled on the kernel's `page_alloc_init_late`.
    ///
    /// Call this once the CPUs of a yard created with [`InitMode::Deferred`] or [`InitMode::Lazy`] run. Other threads
    /// may allocate and free meanwhile. If no memory is deferred, the call only does the sizing. It uses the options
    /// that the yard was created with, so it overrides earlier calls of [`retune`](super::YardLists::retune).
    ///
    /// Takes the zone lock once per section.
    ///
    /// # Errors
    ///
    /// [`InitError`]. The initialised part of the yard stays in use.
    pub fn finish(self) -> Result<(), InitError> {
        let yard = self.yard;
        let tuning = yard.tuning.ok_or(InitError::NotTheCreator)?;
        let passed =
            yard.initialisation().pass(yard.map_init.jobs, Grain::Section).and_then(|()| yard.wait_for_claimed_parts());
        // Even after an error: the initialised part of the yard stays in use.
        let sizing = (yard.map_init.pcp_reset == PcpReset::On).then_some(tuning.sizing);
        let tuned = yard.tables.set_watermarks(yard.geometry, &tuning.watermarks);
        debug_assert!(tuned.is_ok(), "the creation of the yard accepted the options");
        if let Some(sizing) = sizing {
            yard.tables.size_pcps(&yard.platform, yard.geometry, sizing);
        }
        passed
    }

    /// The number of deferred frames, recent but not exact.
    pub fn deferred_pages(self) -> PageCount {
        self.yard.tables.zones.iter().map(|zone| zone.deferred.pages_racy()).sum()
    }

    /// When the memory map is initialised.
    pub fn mode(self) -> InitMode {
        self.yard.map_init.mode
    }

    /// Initialises the next deferred section of a node, highest zone first, for idle workers. Returns the number of
    /// frames of the node that are still deferred; `None` if there was nothing to do or the node does not exist.
    ///
    /// If other CPUs have claimed all deferred frames, the call does nothing and returns their number. If that number
    /// never changes, a worker has panicked, and its part stays deferred.
    ///
    /// # Errors
    ///
    /// [`InitError::MapNotBacked`] if the platform has no memory for the page structures of the unclaimed sections.
    pub fn next_section(self, node: NodeId) -> Result<Option<PageCount>, InitError> {
        let yard = self.yard;
        if node.0 >= yard.nodes() {
            return Ok(None);
        }
        let zones = || ZoneKind::ALL.into_iter().rev().map(move |kind| ZoneId::new(node, kind));
        let left = || zones().map(|id| yard.tables.zones[id.index()].deferred.pages_racy()).sum();
        let (mut not_backed, mut in_progress) = (None, false);
        for id in zones() {
            match yard.initialisation().grow(id) {
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

    /// Initialises the maximum-order blocks that overlap a range of frames. Returns the number of frames that became free.
    ///
    /// # Errors
    ///
    /// - [`InitError::OutsideMap`]: nothing has changed.
    /// - [`InitError::AlreadyInitialised`]: some of the blocks are initialised or claimed already. Nothing has changed,
    ///   unless another thread was initialising the same range at the same time.
    /// - [`InitError::MapNotBacked`]: the sections before the frames that the error names are initialised.
    ///
    /// # Cost
    ///
    /// Writes 64 bytes for each frame of those blocks. Takes a zone lock once for each section and zone.
    pub fn range(self, range: PfnRange) -> Result<PageCount, InitError> {
        let yard = self.yard;
        let initialisation = yard.initialisation();
        if range.is_empty() || yard.map.range().intersection(range) != range {
            return Err(InitError::OutsideMap(range));
        }
        if let Some(absent) =
            initialisation.sections_in(range).find(|part| !initialisation.entry_of(part.start).is_present())
        {
            return Err(InitError::OutsideMap(initialisation.section_of(absent.start)));
        }
        let max_order = yard.geometry.max_order();
        let mut block = PfnRange::new(range.start.align_down(max_order), max_order.pages());
        while block.start < range.end {
            if !initialisation.claims().has_unclaimed_racy(block) {
                return Err(InitError::AlreadyInitialised(block));
            }
            block = PfnRange::new(block.end, max_order.pages());
        }
        let result = initialisation.initialise_sections(range);
        match result.not_backed {
            Some(range) => Err(InitError::MapNotBacked(range)),
            None => Ok(result.freed),
        }
    }
}

//! The runs of present sections that a plan finds: neighbouring sections with memory or with room for devices.

use crate::boot::{BootError, MemorySource};
use crate::units::{Geometry, PageCount, Pfn, PfnRange};

/// The runs, as far as table sizes follow from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlan {
    /// How many there are.
    pub(super) count: usize,
    /// The frames of all of them.
    pub(super) places: PageCount,
    /// From the first frame of the first to the last frame of the last.
    pub(super) span: PfnRange,
    /// The run with the most memory, which has the first places. The first of several.
    largest: PfnRange,
    /// The frames reserved for devices; empty where there are none.
    pub(super) device_space: PfnRange,
    geometry: Geometry,
}

impl RunPlan {
    pub(super) fn new(
        memory: &dyn MemorySource,
        geometry: Geometry,
        device_space: PfnRange,
    ) -> Result<Self, BootError> {
        let mut plan = Self {
            count: 0,
            places: PageCount(0),
            span: PfnRange::default(),
            largest: PfnRange::default(),
            device_space,
            geometry,
        };
        let mut most = 0;
        let mut visit = |run: PfnRange, memory: u64| {
            plan.span = if plan.count == 0 { run } else { PfnRange { start: plan.span.start, end: run.end } };
            plan.count += 1;
            plan.places = PageCount(plan.places.0.saturating_add(run.count().0));
            if memory > most {
                (most, plan.largest) = (memory, run);
            }
        };
        for_each_run(memory, geometry, device_space, &mut visit).ok_or(BootError::TooLarge)?;
        if plan.places.0 >= u64::from(u32::MAX) { Err(BootError::TooMuchMemory(plan.places)) } else { Ok(plan) }
    }

    /// Calls `visit` with each run and its first place, the largest run first. `None` if the memory is not what was planned.
    pub(super) fn number(&self, memory: &dyn MemorySource, mut visit: impl FnMut(PfnRange, u64)) -> Option<()> {
        let mut next = self.largest.count().0;
        let (mut runs, mut span) = (0, PfnRange { start: Pfn(u64::MAX), end: Pfn(0) });
        visit(self.largest, 0);
        let mut has_largest = false;
        for_each_run(memory, self.geometry, self.device_space, &mut |run, _| {
            runs += 1;
            span = PfnRange { start: span.start.min(run.start), end: run.end };
            if run == self.largest {
                has_largest = true;
            } else {
                visit(run, next);
                next = next.saturating_add(run.count().0);
            }
        })?;
        (has_largest && next == self.places.0 && runs == self.count && span == self.span).then_some(())
    }

    /// The place of the first frame for devices; `None` where there are none.
    pub(super) fn device_place(&self, memory: &dyn MemorySource) -> Option<u64> {
        let first = self.device_space.start;
        let mut found = None;
        self.number(memory, |run, place| {
            if run.contains(first) {
                found = Some(place + (first - run.start).0);
            }
        })?;
        found.filter(|_| !self.device_space.is_empty())
    }
}

/// Calls `visit` with each run, ascending, and the frames of its memory. `None` if the last section does not fit the address space.
fn for_each_run(
    memory: &dyn MemorySource,
    geometry: Geometry,
    device_space: PfnRange,
    visit: &mut dyn FnMut(PfnRange, u64),
) -> Option<()> {
    let pages = geometry.section_pages().0;
    let mut pending: Option<(PfnRange, u64)> = None;
    let mut fits = Some(());
    let mut add = |range: PfnRange, frames: u64| {
        let Some(end) = range.end.0.checked_next_multiple_of(pages) else {
            fits = None;
            return;
        };
        let sections = PfnRange { start: Pfn(range.start.0 / pages * pages), end: Pfn(end) };
        match &mut pending {
            Some((run, memory)) if sections.start <= run.end => {
                run.end = run.end.max(sections.end);
                *memory = memory.saturating_add(frames);
            }
            _ => {
                if let Some((run, memory)) = pending.replace((sections, frames)) {
                    visit(run, memory);
                }
            }
        }
    };
    // By their starts, the frames for devices among the ranges of memory.
    let mut devices = Some(device_space).filter(|space| !space.is_empty());
    memory.for_each_memory(&mut |range, _| {
        if let Some(space) = devices.take_if(|space| space.start < range.start) {
            add(space, 0);
        }
        add(range, range.count().0);
    });
    if let Some(space) = devices {
        add(space, 0);
    }
    if let Some((run, memory)) = pending {
        visit(run, memory);
    }
    fits
}

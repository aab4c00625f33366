//! [`Source`]: the caller's tables of memory, as the core reads them.

use crate::shared::fy_status::FY_BAD_ARGUMENT;
use crate::shared::{Failure, fy_range};
use frameyard::boot::MemorySource;
use frameyard::{NodeId, PageCount, Pfn, PfnRange};

/// A range of memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_memory {
    /// The first frame.
    pub start: u64,
    /// The number of frames, at least 1.
    pub count: u64,
    /// The node of the frames, below 64.
    pub node: u32,
    /// Leave it 0.
    pub reserved: u32,
}

/// Ranges of memory, and the ranges in them that the allocator must not use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    memory: &'a [fy_memory],
    reserved: &'a [fy_range],
    /// Frames with tables of the yard itself; empty if they lie elsewhere.
    pub(crate) tables: PfnRange,
}

/// A range of frames.
///
/// # Errors
///
/// [`Failure::Range`] for frames that cannot be.
pub(crate) fn range_of(start: u64, count: u64, frame_size: u64) -> Result<PfnRange, Failure> {
    // The bytes of all frames must have addresses, those of the sections around them too.
    let last = u64::MAX / 4 / frame_size;
    match start.checked_add(count) {
        Some(end) if end <= last => Ok(PfnRange::new(Pfn(start), PageCount(count))),
        _ => Err(Failure::Range(start, count)),
    }
}

impl<'a> Source<'a> {
    /// Checks that each range is one.
    ///
    /// # Errors
    ///
    /// [`Failure`] for ranges that are none, and nodes that cannot be.
    pub(crate) fn new(memory: &'a [fy_memory], reserved: &'a [fy_range], frame_size: u64) -> Result<Self, Failure> {
        let check = |start: u64, count: u64| range_of(start, count, frame_size).map(|_| ());
        for range in memory {
            check(range.start, range.count)?;
            if range.node > u32::from(u16::MAX) {
                return Err(Failure::Node(range.node));
            }
            if range.reserved != 0 {
                return Err(Failure::Other(FY_BAD_ARGUMENT, "a range of memory has a reserved member that is not 0"));
            }
        }
        reserved.iter().try_for_each(|range| check(range.start, range.count))?;
        Ok(Self { memory, reserved, tables: PfnRange::default() })
    }

    pub(crate) fn memory(&self) -> impl Iterator<Item = PfnRange> + use<'a> {
        self.memory.iter().map(|range| PfnRange::new(Pfn(range.start), PageCount(range.count)))
    }

    pub(crate) fn reserved(&self) -> impl Iterator<Item = PfnRange> + use<'a> {
        self.reserved.iter().map(|range| PfnRange::new(Pfn(range.start), PageCount(range.count)))
    }
}

impl MemorySource for Source<'_> {
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId)) {
        self.memory().zip(self.memory).for_each(|(range, told)| visit(range, NodeId(told.node as u16)));
    }

    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange)) {
        // In ascending order, with the tables at their place.
        let mut tables = (!self.tables.is_empty()).then_some(self.tables);
        for range in self.reserved() {
            if let Some(own) = tables.take_if(|own| own.start < range.start) {
                visit(own);
            }
            visit(range);
        }
        tables.into_iter().for_each(visit);
    }
}

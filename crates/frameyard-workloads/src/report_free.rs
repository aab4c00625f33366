//! `report-free`: all memory is used, nearly all of it is freed, and what is free is given back to the host, off the path of
//! allocation. Then it is all used again.
//!
//! Frames that are held, one in so many at random, keep free memory from being one piece. They have contents.

use std::time::Instant;

use fastrand::Rng;
use frameyard::page::FrameState;
use frameyard::reporting::{ReportError, ReportOutcome};
use frameyard::{AllocError, ByteSize, Frames, Gfp, Order, PageCount, Pfn, PfnRange, Yard};
use frameyard_host::{HostPlatform, LockTiming};

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::measure::nanoseconds;
use crate::stamp::{check, stamp};

/// One frame in so many is held: most pageblocks are free as a whole, and many are not.
pub const HELD_EACH: usize = 1024;
/// What the contents of held frames follow from.
const KEY: u64 = 0xf4ee;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReportRun {
    /// Frames that were free before any were given back.
    pub free: PageCount,
    /// What was given back.
    pub reported: ReportOutcome,
    /// How long it took.
    pub report_ns: u64,
    /// How much of the frames was in the host's memory before.
    pub resident_before: ByteSize,
    /// After.
    pub resident_after: ByteSize,
    /// When all of it was used again.
    pub resident_again: ByteSize,
    /// Frames that stood as given back then.
    pub reported_after_use: PageCount,
    /// How long it took to use a frame the first time, and again.
    pub first_use_page_ns: f64,
    /// The same, of memory that has to come from the host again.
    pub use_again_page_ns: f64,
    /// Held frames whose contents were checked.
    pub checked: u64,
}

/// One run of the workload.
///
/// # Errors
///
/// [`WorkloadError::Input`] where the yard gives nothing back, [`WorkloadError::RunTime`] for what the host or a check says.
pub fn run(fixture: &Fixture<'_>, min_order: Order, budget: PageCount, seed: u64) -> Result<ReportRun, WorkloadError> {
    let yard = fixture.vm.yard();
    yard.platform().time_locks(LockTiming::Off);
    let mut held = Held { frames: Vec::new() };
    let (frames, first_use_page_ns) = use_all(yard)?;
    held.choose(frames, seed)?;
    yard.drain_all();
    let free = yard.free_pages();
    let resident_before = resident(yard)?;
    let begin = Instant::now();
    let reported = yard.report_free_pages(min_order, budget).map_err(refused)?;
    let report_ns = nanoseconds(begin.elapsed());
    yard.validate().map_err(WorkloadError::run_time)?;
    let resident_after = resident(yard)?;
    let (frames, use_again_page_ns) = use_all(yard)?;
    let resident_again = resident(yard)?;
    let reported_after_use = PageCount(yard.zones().map(|zone| zone.reported.0).sum());
    drop(frames);
    Ok(ReportRun {
        free,
        reported,
        report_ns,
        resident_before,
        resident_after,
        resident_again,
        reported_after_use,
        first_use_page_ns,
        use_again_page_ns,
        checked: held.check()?,
    })
}

fn refused(error: ReportError) -> WorkloadError {
    match error {
        ReportError::NotReturned { .. } => WorkloadError::run_time(error),
        _ => WorkloadError::input(error),
    }
}

fn resident(yard: &Yard<HostPlatform>) -> Result<ByteSize, WorkloadError> {
    yard.platform().memory().resident().map_err(WorkloadError::run_time)
}

/// Allocates frames one by one until there are none, and writes to each; how long one took in nanoseconds. What watermarks
/// keep back is taken as well, frame by frame, and is not in the time.
fn use_all<'y>(yard: &'y Yard<HostPlatform>) -> Result<(Vec<Frames<'y, HostPlatform>>, f64), WorkloadError> {
    let mut all = Vec::with_capacity(yard.managed_pages().0 as usize);
    let begin = Instant::now();
    loop {
        match yard.frames(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
            Ok(frame) => all.push(written(frame)?),
            Err(AllocError::OutOfMemory { .. }) => break,
            Err(error) => return Err(WorkloadError::run_time(error)),
        }
    }
    let page_ns = begin.elapsed().as_nanos() as f64 / all.len().max(1) as f64;
    yard.drain_all();
    for pfn in yard.memory_ranges().flat_map(|(range, _)| range.start.0..range.end.0).map(Pfn) {
        if yard.frame_info(pfn).is_some_and(|frame| frame.state == FrameState::BuddyFree)
            && let Ok(frame) = yard.request_range(PfnRange::new(pfn, PageCount(1)), Gfp::HIGHUSER_MOVABLE).guard()
        {
            all.push(written(frame)?);
        }
    }
    Ok((all, page_ns))
}

/// A frame that memory of the host stands behind.
fn written(mut frame: Frames<'_, HostPlatform>) -> Result<Frames<'_, HostPlatform>, WorkloadError> {
    let bytes = frame.bytes_mut().ok_or_else(|| WorkloadError::input("the frames have no bytes"))?;
    bytes[..8].copy_from_slice(&KEY.to_le_bytes());
    Ok(frame)
}

/// Frames that are held.
struct Held<'y> {
    frames: Vec<Frames<'y, HostPlatform>>,
}

impl<'y> Held<'y> {
    /// Keeps some of all frames and frees the others.
    fn choose(&mut self, frames: Vec<Frames<'y, HostPlatform>>, seed: u64) -> Result<(), WorkloadError> {
        let mut random = Rng::with_seed(seed);
        for mut frame in frames {
            if random.usize(..HELD_EACH) == 0 {
                let number = frame.pfn().0;
                stamp(frame.bytes_mut().ok_or_else(|| WorkloadError::input("the frames have no bytes"))?, KEY, number);
                self.frames.push(frame);
            }
        }
        Ok(())
    }

    /// Checks their contents; how many.
    fn check(&self) -> Result<u64, WorkloadError> {
        for frame in &self.frames {
            let bytes = frame.bytes().ok_or_else(|| WorkloadError::input("the frames have no bytes"))?;
            check(bytes, KEY, frame.pfn().0, "the frames that were held").map_err(WorkloadError::run_time)?;
        }
        Ok(self.frames.len() as u64)
    }
}

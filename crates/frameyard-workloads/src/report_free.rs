//! `report-free`: uses all memory, frees nearly all of it, and returns free memory to the host, off the allocation path. Then
//! uses all memory again.
//!
//! Frames held at random, one in [`HELD_EACH`], keep free memory in pieces. Their contents are checked at the end.

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

/// One frame in this number is held, so that most pageblocks are wholly free and many are not.
pub const HELD_EACH: usize = 1024;
/// The key of the contents of held frames.
const KEY: u64 = 0xf4ee;

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReportRun {
    /// Free frames before any were returned.
    pub free: PageCount,
    /// What was returned.
    pub reported: ReportOutcome,
    /// Time of the return.
    pub report_ns: u64,
    /// Resident memory of the frames before the return.
    pub resident_before: ByteSize,
    /// Resident memory after the return.
    pub resident_after: ByteSize,
    /// Resident memory when all of it was used again.
    pub resident_again: ByteSize,
    /// Frames still marked as returned at that time.
    pub reported_after_use: PageCount,
    /// Time to allocate and write a frame the first time.
    pub first_use_page_ns: f64,
    /// The same when the host has to provide the memory again.
    pub use_again_page_ns: f64,
    /// Held frames whose contents were checked.
    pub checked: u64,
}

/// Runs the workload once.
///
/// # Errors
///
/// [`WorkloadError::Input`] if the yard cannot return memory; [`WorkloadError::RunTime`] for a refusal of the host or a failed
/// check.
pub fn run(fixture: &Fixture<'_>, min_order: Order, budget: PageCount, seed: u64) -> Result<ReportRun, WorkloadError> {
    let yard = fixture.vm.yard();
    yard.platform().time_locks(LockTiming::Off);
    let mut held = Held { frames: Vec::new() };
    let (frames, first_use_page_ns) = use_all(yard)?;
    held.choose(frames, seed)?;
    yard.drain_all();
    let free = yard.stats().free_pages();
    let resident_before = resident(yard)?;
    let begin = Instant::now();
    let reported = yard.report_free_pages(min_order, budget).map_err(refused)?;
    let report_ns = nanoseconds(begin.elapsed());
    yard.validate().map_err(WorkloadError::run_time)?;
    let resident_after = resident(yard)?;
    let (frames, use_again_page_ns) = use_all(yard)?;
    let resident_again = resident(yard)?;
    let reported_after_use = PageCount(yard.stats().zones().map(|zone| zone.reported.0).sum());
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

/// Allocates frames one by one until memory is exhausted, and writes to each. Also returns the nanoseconds per frame. Frames
/// below the watermarks are allocated by number afterwards, without being timed.
fn use_all<'y>(yard: &'y Yard<HostPlatform>) -> Result<(Vec<Frames<'y, HostPlatform>>, f64), WorkloadError> {
    let mut all = Vec::with_capacity(yard.stats().managed_pages().0 as usize);
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
        if yard.stats().frame(pfn).is_some_and(|frame| frame.state == FrameState::BuddyFree)
            && let Ok(frame) = yard.request(PfnRange::new(pfn, PageCount(1)), Gfp::HIGHUSER_MOVABLE).guard()
        {
            all.push(written(frame)?);
        }
    }
    Ok((all, page_ns))
}

/// Writes to a frame, so that the host provides its memory.
fn written(mut frame: Frames<'_, HostPlatform>) -> Result<Frames<'_, HostPlatform>, WorkloadError> {
    let bytes = frame.bytes_mut().ok_or_else(|| WorkloadError::input("the frames have no memory"))?;
    bytes[..8].copy_from_slice(&KEY.to_le_bytes());
    Ok(frame)
}

/// The held frames.
struct Held<'y> {
    frames: Vec<Frames<'y, HostPlatform>>,
}

impl<'y> Held<'y> {
    /// Keeps one frame in [`HELD_EACH`] and frees the rest.
    fn choose(&mut self, frames: Vec<Frames<'y, HostPlatform>>, seed: u64) -> Result<(), WorkloadError> {
        let mut random = Rng::with_seed(seed);
        for mut frame in frames {
            if random.usize(..HELD_EACH) == 0 {
                let number = frame.pfn().0;
                stamp(frame.bytes_mut().ok_or_else(|| WorkloadError::input("the frames have no memory"))?, KEY, number);
                self.frames.push(frame);
            }
        }
        Ok(())
    }

    /// Checks their contents. Returns their number.
    fn check(&self) -> Result<u64, WorkloadError> {
        for frame in &self.frames {
            let bytes = frame.bytes().ok_or_else(|| WorkloadError::input("the frames have no memory"))?;
            check(bytes, KEY, frame.pfn().0, "the frames that were held").map_err(WorkloadError::run_time)?;
        }
        Ok(self.frames.len() as u64)
    }
}

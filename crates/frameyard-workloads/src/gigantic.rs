//! `gigantic`: pages of 1 GiB in memory where blocks that cannot move come and go among movable frames.
//!
//! The tasks fill memory with movable frames, and with unmovable, reclaimable and long-term pinned blocks. A sixth of the movable frames are
//! freed again, so that free frames lie everywhere. In each event a task frees a block and allocates another. The amounts of what cannot move rise and fall. Half of the movable events replace an eighth of the
//! frames, and pinned frames stay sixteen times as long as unmovable ones. Meanwhile the first task does the steps of the background compactor.
//! Then the tasks rest, and pages of 1 GiB are allocated, with the owner of the movable frames, until a request fails.

use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fastrand::Rng;
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard};
use frameyard_host::{HostPlatform, HostTopology};

use crate::error::WorkloadError;
use crate::measure::nanoseconds;
use crate::task::task_seed;
use crate::tasks::{HostTasks, TaskError, TaskRunner};

mod holder;
mod mix;
mod recorded;

use holder::Holder;
use mix::Mix;
use recorded::{Recorded, can_fill};
pub use recorded::{RecordedOperation, Recording};

/// The movable share of memory, in percent.
const MOVABLE: u64 = 75;
/// All that is in use, in percent, where recordings say which part is movable: as much as in the mix.
const FULL: u64 = 80;
/// The most that blocks of each kind that cannot move take, in thousandths of memory: unmovable, reclaimable, pinned. Together 5 %.
const STAYING: [u64; 3] = [20, 20, 10];
/// The amounts rise and fall by a quarter, this number of times.
const WAVES: u64 = 4;
/// The first task does a background step after this number of events.
const BACKGROUND: u64 = 4096;

/// The workload and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct GiganticWorkload {
    /// Number of tasks that share the work.
    pub tasks: NonZeroU32,
    /// Blocks that are freed and replaced.
    pub events: u64,
    /// Seed of all choices.
    pub seed: u64,
}

/// A page of 1 GiB that was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObtainedPage {
    /// Duration of the request.
    pub ns: u64,
    /// Frames moved for it.
    pub moved: u64,
    /// Duration of copying these frames, page by page, without anything else; `None` if they have no bytes.
    pub copy_ns: Option<u64>,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct GiganticOutcome {
    /// Whole regions of 1 GiB.
    pub regions: u64,
    /// Regions that hold a block that cannot move: after memory was filled.
    pub tainted_before: u64,
    /// The same after the last event.
    pub tainted: u64,
    /// The pages of 1 GiB that the free memory of the other regions has the size of.
    pub possible: u64,
    /// The pages of 1 GiB that were obtained.
    pub obtained: Vec<ObtainedPage>,
    /// The frames in use after the last event, in percent.
    pub used_percent: f64,
    /// Frames moved by background steps.
    pub background_moved: u64,
    /// Nanoseconds of an event, mean over tasks.
    pub event_ns: f64,
}

/// What a task does.
enum Work<'r> {
    Mix(Mix),
    Recorded(Recorded<'r>),
}

impl Work<'_> {
    fn fill(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>, targets: [u64; 3]) -> Result<(), TaskError> {
        match self {
            Self::Mix(mix) => mix.fill(yard, holder, targets),
            Self::Recorded(recorded) => recorded.fill(yard, holder),
        }
    }

    fn event(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>, targets: [u64; 3]) -> Result<(), TaskError> {
        match self {
            Self::Mix(mix) => mix.event(yard, holder, targets),
            Self::Recorded(recorded) => recorded.event(yard, holder),
        }
    }

    /// Calls `visit` with the first frame of each block that cannot move.
    fn for_each_staying(&self, visit: impl FnMut(Pfn)) {
        match self {
            Self::Mix(mix) => mix.staying().for_each(visit),
            Self::Recorded(recorded) => recorded.staying().for_each(visit),
        }
    }

    fn free_all(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<(), TaskError> {
        match self {
            Self::Mix(mix) => mix.free_all(yard, holder),
            Self::Recorded(recorded) => recorded.free_all(yard, holder),
        }
    }
}

impl GiganticWorkload {
    /// Runs the workload once on this host. Frees all frames. With recordings, their operations take the place of the mix.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`]. Frames allocated before the error stay allocated.
    pub fn run(
        &self,
        yard: &Yard<HostPlatform>,
        host: &HostTopology,
        recordings: &[Recording],
    ) -> Result<GiganticOutcome, WorkloadError> {
        let runner = HostTasks::new(host);
        let memory = yard.stats().managed_pages().0;
        let share = if recordings.is_empty() { MOVABLE } else { FULL };
        let slots_of_task = (memory * share / 100 / u64::from(self.tasks.get())) as usize;
        if let Some(at) = recordings.iter().position(|recording| !can_fill(recording, slots_of_task)) {
            let reason = format!("recording {} has too few frames in use at once to fill memory", at + 1);
            return Err(WorkloadError::input(reason));
        }
        let remembered = yard.geometry().largest_order().pages().0 as usize;
        let holder = Holder::new(yard, slots_of_task * self.tasks.get() as usize, remembered);
        let work = |number: u32| {
            let first = number as usize * slots_of_task;
            let (slots, rng) = (first..first + slots_of_task, Rng::with_seed(task_seed(self.seed, number)));
            match recordings {
                [] => Work::Mix(Mix::new(slots, rng)),
                _ => Work::Recorded(Recorded::new(recordings, slots, rng)),
            }
        };
        let tasks: Vec<Mutex<Work<'_>>> = (0..self.tasks.get()).map(|number| Mutex::new(work(number))).collect();
        let regions = Regions::of(yard);
        touch_all(yard);
        runner.run(self.tasks, |number| lock(&tasks[number]).fill(yard, &holder, self.targets(memory, 0)))?;
        let tainted_before = regions.tainted(&tasks).iter().filter(|tainted| **tainted).count() as u64;
        let events = self.events / u64::from(self.tasks.get());
        let times = runner.run(self.tasks, |number| {
            let task = &mut *lock(&tasks[number]);
            let begin = runner.now_ns();
            for event in 0..events {
                task.event(yard, &holder, self.targets(memory, event))?;
                if number == 0 && event % BACKGROUND == 0 {
                    yard.compaction().background(NodeId(0), &holder.owners());
                }
            }
            Ok((runner.now_ns() - begin) as f64 / events.max(1) as f64)
        })?;
        let background_moved = holder.moved();
        yard.drain_all();
        let (tainted, possible) = regions.possible(&tasks, &holder);
        let used_percent = 100.0 - yard.stats().free_pages().0 as f64 * 100.0 / memory.max(1) as f64;
        let obtained = obtain(yard, &holder)?;
        for task in &tasks {
            lock(task).free_all(yard, &holder)?;
        }
        Ok(GiganticOutcome {
            regions: regions.starts.len() as u64,
            tainted_before,
            tainted,
            possible,
            obtained,
            used_percent,
            background_moved,
            event_ns: times.iter().sum::<f64>() / times.len().max(1) as f64,
        })
    }

    /// The frames of each kind that cannot move that a task should have at an event: between three quarters of the most and all of it.
    fn targets(&self, memory: u64, event: u64) -> [u64; 3] {
        let wave = (self.events / u64::from(self.tasks.get()) / WAVES).max(2);
        let (at, half) = (event % wave, wave / 2);
        let rise = if at < half { at } else { wave - at };
        STAYING.map(|thousandths| {
            let most = memory * thousandths / 1000 / u64::from(self.tasks.get());
            most * 3 / 4 + most / 4 * rise.min(half) / half
        })
    }
}

/// Has the host provide all memory, so that no request waits for it. Nothing is allocated yet.
fn touch_all(yard: &Yard<HostPlatform>) {
    for zone in yard.stats().zones() {
        let frames = (zone.span.start.0..zone.span.end.0).map(Pfn);
        for bytes in frames.map_while(|pfn| yard.platform().frame_bytes(pfn)) {
            // SAFETY: the yard has just been made, and no frame is allocated. Free frames contain zeroes.
            unsafe { bytes.as_ptr().write_volatile(0) };
        }
    }
}

fn lock<'m, 'r>(task: &'m Mutex<Work<'r>>) -> MutexGuard<'m, Work<'r>> {
    task.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates pages of 1 GiB until none is left, and frees them. Nothing else uses the yard.
fn obtain(yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<Vec<ObtainedPage>, WorkloadError> {
    let order = yard.geometry().largest_order();
    let (mut pages, mut obtained) = (Vec::new(), Vec::new());
    let owners: Owners<'_> = holder.owners();
    loop {
        holder.forget_moves();
        let (begin, before) = (Instant::now(), holder.moved());
        let Ok(page) = yard.request(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).owners(&owners).range() else { break };
        let ns = nanoseconds(begin.elapsed());
        pages.push(page.start);
        // SAFETY: the page that the frames were moved out of was just allocated here, and no task is running.
        let copy_ns = unsafe { holder.copy_back_ns() }?;
        obtained.push(ObtainedPage { ns, moved: holder.moved() - before, copy_ns });
    }
    for page in pages {
        yard.free(page, order).map_err(TaskError::from)?;
    }
    Ok(obtained)
}

/// The whole regions of 1 GiB in memory.
struct Regions {
    order: Order,
    /// Their first frames, ascending.
    starts: Vec<Pfn>,
}

impl Regions {
    /// The regions of a yard of which nothing is allocated.
    fn of(yard: &Yard<HostPlatform>) -> Self {
        let (geometry, order) = (yard.geometry(), yard.geometry().largest_order());
        let is_free = |pfn: u64| {
            let info = yard.stats().frame(Pfn(pfn));
            info.is_some_and(|info| !matches!(info.state, FrameState::Reserved | FrameState::Interior))
        };
        let is_whole = |at: &Pfn| {
            let frames = PfnRange::new(*at, order.pages());
            (frames.start.0..frames.end.0).step_by(geometry.max_order().pages().0 as usize).all(is_free)
        };
        let in_zone = |span: PfnRange| {
            let starts = span.start.align_up(order).map_or(span.end.0, |at| at.0)..span.end.0;
            starts.step_by(order.pages().0 as usize).map(Pfn).filter(move |at| span.end - *at >= order.pages())
        };
        let mut starts: Vec<Pfn> = yard.stats().zones().flat_map(|zone| in_zone(zone.span)).filter(is_whole).collect();
        starts.sort_unstable();
        Self { order, starts }
    }

    /// The place of a frame's region, if it has one.
    fn place(&self, pfn: Pfn) -> Option<usize> {
        self.starts.binary_search(&pfn.align_down(self.order)).ok()
    }

    /// Which regions hold a block that cannot move.
    fn tainted(&self, tasks: &[Mutex<Work<'_>>]) -> Vec<bool> {
        let mut tainted = vec![false; self.starts.len()];
        for task in tasks {
            lock(task).for_each_staying(|pfn| {
                if let Some(place) = self.place(pfn) {
                    tainted[place] = true;
                }
            });
        }
        tainted
    }

    /// The tainted regions, and the pages of 1 GiB that free memory of clean ones has the size of.
    fn possible(&self, tasks: &[Mutex<Work<'_>>], holder: &Holder<'_>) -> (u64, u64) {
        let tainted = self.tainted(tasks);
        let mut free: Vec<u64> = vec![self.order.pages().0; self.starts.len()];
        holder.for_each(|pfn| {
            if let Some(place) = self.place(pfn) {
                free[place] -= 1;
            }
        });
        let clean = tainted.iter().zip(&free).filter(|(tainted, _)| !**tainted).map(|(_, free)| PageCount(*free));
        let pages: PageCount = clean.sum();
        (tainted.iter().filter(|tainted| **tainted).count() as u64, pages.0 >> self.order.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_move_rises_from_three_quarters_to_all_and_falls_again() {
        let workload = GiganticWorkload { tasks: NonZeroU32::MIN, events: 4000, seed: 1 };
        let unmovable = |event| workload.targets(1_000_000, event)[0];
        assert_eq!([0, 250, 500, 750, 1000].map(unmovable), [15_000, 17_500, 20_000, 17_500, 15_000]);
        assert_eq!(workload.targets(1_000_000, 500).iter().sum::<u64>(), 50_000, "5 %");
    }
}

//! `frag`: single frames freed and allocated at random in fragmented memory, after LLFree's benchmark of that name.
//!
//! The tasks allocate all memory in single frames, and free a share of it at random. In each iteration they free and allocate again a
//! tenth of that share, one frame at a time. Nothing moves frames, so whole pageblocks appear only by the allocator's choice of the
//! frame that each request gets.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fastrand::Rng;
use frameyard::locks::LockUse;
use frameyard::owners::Adoption;
use frameyard::page::{Counts, references_of_pins};
use frameyard::units::MigrateType;
use frameyard::{AllocError, Gfp, Order, Pfn, Yard};
use frameyard_host::{HostPlatform, HostTopology};

use crate::measure::nanoseconds_each;
use crate::task::task_seed;
use crate::tasks::{TaskError, run_tasks};

/// The flags of all requests: memory for user pages.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;
/// An iteration replaces one of this number of the freed frames.
const REPLACED: u64 = 10;
/// One of this number of pageblocks keeps the frames that are never freed.
const KEEPING: u64 = 4;

/// The workload and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct FragWorkload {
    /// Number of tasks that share the work.
    pub tasks: NonZeroU32,
    /// The share of memory that is free during the iterations, in percent.
    pub free_percent: u8,
    /// Frames that are pinned and never freed, in every fourth pageblock.
    pub kept_frames: u32,
    /// Seed of the random choices.
    pub seed: u64,
}

/// The state of memory after an iteration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FragPoint {
    /// The number of the iteration, from 1; 0 before the first.
    pub iteration: u32,
    /// Pageblocks of the yard.
    pub pageblocks: u64,
    /// Pageblocks without an allocated frame, by the frames that the tasks hold.
    pub empty: u64,
    /// Pageblocks that requests can have which may not wait: on free lists and in depots, without those on lists of CPUs.
    pub whole: u64,
    /// Nanoseconds per pair of a free and an allocation, mean over the iterations since the last point.
    pub pair_ns: f64,
    /// Pairs since the last point.
    pub pairs: u64,
    /// Use of the zone locks since the last point.
    pub zone_lock: LockUse,
}

/// The frames of a task.
struct Held {
    frames: Vec<Pfn>,
    rng: Rng,
}

impl FragWorkload {
    /// Runs the workload once, and calls `report` before the first iteration and after each of `iterations`, which ascend. Frees all
    /// frames.
    ///
    /// # Errors
    ///
    /// [`TaskError`]. Frames allocated before the error stay allocated.
    pub fn run(
        &self,
        yard: &Yard<HostPlatform>,
        host: &HostTopology,
        iterations: &[u32],
        mut report: impl FnMut(FragPoint),
    ) -> Result<(), TaskError> {
        let (held, kept) = self.fragment(yard, host)?;
        let pairs_of_task = self.freed(yard) / REPLACED / u64::from(self.tasks.get());
        let (mut done, mut before) = (0, zone_lock(yard));
        for iteration in std::iter::once(0).chain(iterations.iter().copied()) {
            let pairs = u64::from(iteration - done) * pairs_of_task;
            let pair_ns = self.replace(yard, host, &held, pairs)?;
            let (pageblocks, empty) = count_pageblocks(yard, &held, &kept);
            let now = zone_lock(yard);
            report(FragPoint {
                iteration,
                pageblocks,
                empty,
                whole: whole_pageblocks(yard),
                pair_ns,
                pairs: pairs * u64::from(self.tasks.get()),
                zone_lock: now.since(before),
            });
            (done, before) = (iteration, now);
        }
        let mut held = held.iter().flat_map(|held| std::mem::take(&mut lock(held).frames));
        held.try_for_each(|frame| yard.free(frame, Order::ZERO))?;
        kept.into_iter().try_for_each(|frame| unpin_and_free(yard, frame))
    }

    /// Frames that are free during the iterations.
    fn freed(&self, yard: &Yard<HostPlatform>) -> u64 {
        yard.stats().managed_pages().0 * u64::from(self.free_percent) / 100
    }

    /// Allocates all memory, chooses the frames that are never freed, and frees a share of the rest at random.
    fn fragment(
        &self,
        yard: &Yard<HostPlatform>,
        host: &HostTopology,
    ) -> Result<(Vec<Mutex<Held>>, Vec<Pfn>), TaskError> {
        let filled = run_tasks(host, self.tasks, |_| {
            let mut frames = Vec::new();
            loop {
                match yard.alloc(Order::ZERO, GFP | Gfp::NOWARN) {
                    Ok(frame) => frames.push(frame),
                    Err(AllocError::OutOfMemory { .. }) => return Ok(frames),
                    Err(error) => return Err(error.into()),
                }
            }
        })?;
        let mut all: Vec<Pfn> = filled.into_iter().flatten().collect();
        let mut rng = Rng::with_seed(self.seed);
        rng.shuffle(&mut all);
        let kept = choose_kept(&mut all, yard.geometry().pageblock_order(), self.kept_frames);
        kept.iter().try_for_each(|frame| pin(yard, *frame))?;
        let managed = yard.stats().managed_pages().0 as usize;
        let left = managed.saturating_sub(self.freed(yard) as usize).clamp(1, all.len());
        let freed = all.split_off(left.saturating_sub(kept.len()).max(1));
        let parts: Vec<&[Pfn]> = chunks(&freed, self.tasks).collect();
        run_tasks(host, self.tasks, |task| {
            parts.get(task).into_iter().copied().flatten().try_for_each(|frame| yard.free(*frame, Order::ZERO))?;
            Ok(())
        })?;
        let mut shares = chunks(&all, self.tasks);
        let held = (0..self.tasks.get()).map(|task| {
            let frames = shares.next().unwrap_or_default().to_vec();
            Mutex::new(Held { frames, rng: Rng::with_seed(task_seed(self.seed, task)) })
        });
        Ok((held.collect(), kept))
    }

    /// Frees and allocates `pairs` frames in each task. Returns the nanoseconds of a pair.
    fn replace(
        &self,
        yard: &Yard<HostPlatform>,
        host: &HostTopology,
        held: &[Mutex<Held>],
        pairs: u64,
    ) -> Result<f64, TaskError> {
        let times = run_tasks(host, self.tasks, |task| {
            let Held { frames, rng } = &mut *lock(&held[task]);
            let start = Instant::now();
            for _ in 0..pairs {
                let place = rng.usize(..frames.len());
                yard.free(frames[place], Order::ZERO)?;
                frames[place] = yard.alloc(Order::ZERO, GFP)?;
            }
            Ok(nanoseconds_each(start.elapsed(), pairs.max(1)))
        })?;
        Ok(times.iter().sum::<f64>() / f64::from(self.tasks.get()))
    }
}

/// The frames of a task, which no other thread uses.
fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What pins a frame counts as.
const PINNED: Counts = match references_of_pins(Order::ZERO, 1) {
    Some(references) => Counts { references, mappings: 0 },
    None => panic!("one pin can be counted"),
};

/// Pins an allocated frame, as for direct access by a device: it cannot move from now on.
fn pin(yard: &Yard<HostPlatform>, frame: Pfn) -> Result<(), TaskError> {
    Ok(yard.counted().adopt(frame, Order::ZERO, Adoption { counts: PINNED, owner: 0, index: 0 })?)
}

/// Frees a frame that [`pin`] has pinned.
fn unpin_and_free(yard: &Yard<HostPlatform>, frame: Pfn) -> Result<(), TaskError> {
    // SAFETY: the frame was pinned here, its only user goes, and then this function has it alone.
    unsafe {
        if let Some(page) = yard.counted().page(frame) {
            let _ = page.unpin_many(1);
        }
        Ok(yard.counted().free(frame, Order::ZERO)?)
    }
}

/// Takes the frames that are never freed out of `all`: the first `number` there of every fourth pageblock.
fn choose_kept(all: &mut Vec<Pfn>, pageblock_order: Order, number: u32) -> Vec<Pfn> {
    let mut kept_of_pageblock = HashMap::<u64, u32>::new();
    let is_kept = |frame: &mut Pfn| {
        let pageblock = frame.0 >> pageblock_order.0;
        let kept = kept_of_pageblock.entry(pageblock).or_default();
        let is_kept = pageblock.is_multiple_of(KEEPING) && *kept < number;
        *kept += u32::from(is_kept);
        is_kept
    };
    all.extract_if(.., is_kept).collect()
}

/// Parts of frames, one for each task, as equal as possible.
fn chunks(frames: &[Pfn], tasks: NonZeroU32) -> impl Iterator<Item = &[Pfn]> {
    frames.chunks(frames.len().div_ceil(tasks.get() as usize).max(1))
}

/// The pageblocks of the yard, and those without a held frame.
fn count_pageblocks(yard: &Yard<HostPlatform>, held: &[Mutex<Held>], kept: &[Pfn]) -> (u64, u64) {
    let order = yard.geometry().pageblock_order();
    let pageblocks = yard.stats().managed_pages().0 >> order.0;
    let mut in_use: HashSet<u64> = kept.iter().map(|frame| frame.0 >> order.0).collect();
    held.iter().for_each(|held| in_use.extend(lock(held).frames.iter().map(|frame| frame.0 >> order.0)));
    (pageblocks, pageblocks.saturating_sub(in_use.len() as u64))
}

/// Whole pageblocks on free lists and in depots.
fn whole_pageblocks(yard: &Yard<HostPlatform>) -> u64 {
    let geometry = yard.geometry();
    let pageblock = geometry.pageblock_order().0;
    let of_zone = |id| {
        let zone = yard.zone(id);
        let of_type = |migrate_type| {
            let larger = (pageblock..=geometry.max_order().0)
                .map(|order| zone.free_blocks(Order(order), migrate_type) << (order - pageblock))
                .sum::<u64>();
            larger + zone.depot_blocks(geometry.pageblock_order(), migrate_type)
        };
        MigrateType::ALL.into_iter().map(of_type).sum::<u64>()
    };
    yard.stats().zones().map(|zone| of_zone(zone.id)).sum()
}

/// The use of all zone locks.
fn zone_lock(yard: &Yard<HostPlatform>) -> LockUse {
    yard.stats().zones().fold(LockUse::default(), |lock, zone| zone.lock.and(lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fourth_pageblock_keeps_its_first_frames() {
        // Three pageblocks of eight frames, of which the first and the last keep frames.
        let frames = [5, 3, 9, 4, 34, 33, 32, 35].map(Pfn);
        let mut all = frames.to_vec();
        assert_eq!(choose_kept(&mut all, Order(3), 2), [5, 3, 34, 33].map(Pfn));
        assert_eq!(all, [9, 4, 32, 35].map(Pfn));
        assert_eq!(choose_kept(&mut all, Order(3), 0), []);
    }
}

//! The chunks of a job (`job`): exactly one worker takes each chunk. Workers take chunks with relaxed additions to one
//! shared position.

use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::job::{Chunks, ParallelJob};
use crate::loom_models::{assert_fails, explore};
use crate::sync::{AtomicU64, Ordering, Weakness, weakened};

/// Three chunks: 1, 2 and 3, 4.
const JOB: ParallelJob = ParallelJob { start: 1, size: 4, align: 2, min_chunk: 0, max_threads: 2 };
/// The failure message for a position in two workers' chunks, or in none.
const NOT_ONCE: &str = "a position was not worked on once";

/// The state that the workers of a model share.
struct Shared {
    chunks: Chunks,
    /// How often each position was worked on. Workers write it without further synchronisation.
    positions: Vec<UnsafeCell<u64>>,
    merged: AtomicU64,
}

// SAFETY: loom checks every access to the cells for races.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn work(&self) {
        let work = |done: &mut u64, chunk: core::ops::Range<u64>| {
            for position in chunk {
                // SAFETY: the position is in no other worker's chunk; loom panics otherwise.
                self.positions[position as usize].with_mut(|count| unsafe { *count += 1 });
                *done += 1;
            }
        };
        // Relaxed: the caller reads it after it has joined all workers.
        self.chunks.work_through(&work, &|done| {
            self.merged.fetch_add(done, Ordering::Relaxed);
        });
    }
}

/// The caller and `helpers` other threads do a job. The caller checks all positions at the end.
fn share_a_job(helpers: usize) {
    let end = JOB.start + JOB.size;
    let shared = Arc::new(Shared {
        chunks: Chunks::of(&JOB).expect("a job"),
        positions: (0..end).map(|_| UnsafeCell::new(0)).collect(),
        merged: AtomicU64::new(0),
    });
    let workers: Vec<_> = (0..helpers)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work())
        })
        .collect();
    shared.work();
    for worker in workers {
        worker.join().unwrap();
    }
    for (position, count) in shared.positions.iter().enumerate() {
        // SAFETY: all workers are done; loom panics if this thread does not see their writes.
        let count = count.with(|count| unsafe { *count });
        assert_eq!(count, u64::from(position as u64 >= JOB.start), "{NOT_ONCE}: {position}");
    }
    assert_eq!(shared.merged.load(Ordering::Relaxed), JOB.size, "{NOT_ONCE}");
}

#[test]
fn two_workers_do_each_position_of_a_job_once() {
    explore(|| share_a_job(1));
}

#[test]
fn three_workers_do_each_position_of_a_job_once() {
    explore(|| share_a_job(2));
}

#[test]
fn non_atomic_position_fails() {
    weakened(Weakness::SplitAddition, || assert_fails(|| share_a_job(1), &[NOT_ONCE, "Causality violation"]));
}

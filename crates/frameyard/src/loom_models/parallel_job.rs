//! The chunks of a job (`job`): each is taken by one worker, though all take them from one position without order.

use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread;

use super::{assert_fails, explore};
use crate::job::{Chunks, ParallelJob};
use crate::sync::{AtomicU64, Ordering, Weakness, weakened};

/// Three chunks: 1, 2 and 3, 4.
const JOB: ParallelJob = ParallelJob { start: 1, size: 4, align: 2, min_chunk: 0, max_threads: 2 };
/// The message of a position in two workers' chunks, or in none.
const NOT_ONCE: &str = "a position was not worked on once";

/// What the workers of a model share.
struct Shared {
    chunks: Chunks,
    /// How often each position was worked on, written without synchronisation of its own.
    positions: Vec<UnsafeCell<u64>>,
    merged: AtomicU64,
}

// SAFETY: loom checks every access to the cells for races, that is what they are for.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn work(&self) {
        let work = |done: &mut u64, chunk: core::ops::Range<u64>| {
            for position in chunk {
                // SAFETY: the position is in no other worker's chunk; loom panics where that is not so.
                self.positions[position as usize].with_mut(|count| unsafe { *count += 1 });
                *done += 1;
            }
        };
        // Relaxed: the caller reads it when all workers are joined.
        self.chunks.work_through(&work, &|done| {
            self.merged.fetch_add(done, Ordering::Relaxed);
        });
    }
}

/// The caller and `others` workers do a job; the caller looks at all of it at the end.
fn share_a_job(others: usize) {
    let end = JOB.start + JOB.size;
    let shared = Arc::new(Shared {
        chunks: Chunks::of(&JOB).expect("a job"),
        positions: (0..end).map(|_| UnsafeCell::new(0)).collect(),
        merged: AtomicU64::new(0),
    });
    let workers: Vec<_> = (0..others)
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
        // SAFETY: all workers are done; loom panics where their writes are not seen here.
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

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::string::ToString;
use std::sync::Mutex;
use std::vec::Vec;

use proptest::prelude::*;

use crate::job::*;
use crate::units::{CpuId, Pfn};

const NODE: NodeId = NodeId(3);

/// How the platform answers a call for workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Workers {
    /// Threads of the host.
    Threads,
    /// As the trait provides: the caller alone.
    Provided,
}

/// A platform that counts the workers it was asked for.
struct TestPlatform {
    workers: Workers,
    calls: AtomicU64,
    started: AtomicU64,
}

impl TestPlatform {
    fn new(workers: Workers) -> Self {
        Self { workers, calls: AtomicU64::new(0), started: AtomicU64::new(0) }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }
}

impl Platform for TestPlatform {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn spin(&self, _round: u32) {
        std::thread::yield_now();
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }

    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.started.fetch_add(count as u64, Ordering::Relaxed);
        assert!((0..count).all(|worker| node_of(worker) == NODE));
        if self.workers == Workers::Provided {
            job(0);
            return Ok(());
        }
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..count).map(|worker| scope.spawn(move || job(worker))).collect();
            let own = catch_unwind(AssertUnwindSafe(|| job(0)));
            let panicked = others.into_iter().filter_map(|worker| worker.join().err()).count();
            if panicked == 0 && own.is_ok() { Ok(()) } else { Err(WorkerPanicked) }
        })
    }
}

/// 1 GiB of frames on a node of 16 CPUs, cut by maximum-order blocks.
const GIB: ParallelJob = ParallelJob { start: 0, size: 262_144, align: 1024, min_chunk: 1024, max_threads: 16 };

/// Runs the job; its chunks in ascending order, and how often results were merged.
fn chunks_of(job: &ParallelJob, platform: &TestPlatform) -> (Vec<Range<u64>>, usize) {
    let merged: Mutex<(Vec<Range<u64>>, usize)> = Mutex::default();
    job.run(platform, NODE, &|taken: &mut Vec<Range<u64>>, chunk| taken.push(chunk), &|taken| {
        let mut merged = merged.lock().unwrap();
        assert!(!taken.is_empty(), "a worker that did nothing has nothing to merge");
        merged.0.extend(taken);
        merged.1 += 1;
    })
    .unwrap();
    let (mut chunks, merges) = merged.into_inner().unwrap();
    chunks.sort_unstable_by_key(|chunk| chunk.start);
    (chunks, merges)
}

/// Jobs of which many begin or end near one of both ends of the positions.
fn jobs() -> impl Strategy<Value = ParallelJob> {
    let numbers = (any::<u64>(), 0u64..3000, 0u32..8, 0u64..300, 1usize..6, 0..3);
    numbers.prop_map(|(anywhere, size, align_shift, min_chunk, max_threads, place)| {
        let start = match place {
            0 => anywhere % 2000,
            1 => u64::MAX - size - anywhere % 64 * (anywhere >> 8 & 1),
            _ => anywhere.min(u64::MAX - size),
        };
        ParallelJob { start, size, align: 1 << align_shift, min_chunk, max_threads }
    })
}

proptest! {
    #[test]
    fn every_position_is_in_one_chunk_and_chunks_have_the_size_and_borders_they_should(job in jobs()) {
        let (chunks, merges) = chunks_of(&job, &TestPlatform::new(Workers::Threads));
        let size = job.chunk().unwrap();
        let mut next = job.start;
        for (number, chunk) in chunks.iter().enumerate() {
            prop_assert_eq!(chunk.start, next);
            prop_assert!(chunk.start < chunk.end);
            let is_last = number + 1 == chunks.len();
            prop_assert!(is_last || chunk.end.is_multiple_of(job.align), "{:?} ends inside a block", chunk);
            prop_assert!(chunk.end - chunk.start <= size);
            prop_assert!(number == 0 || is_last || chunk.end - chunk.start == size);
            next = chunk.end;
        }
        prop_assert_eq!(next, job.start + job.size);
        prop_assert!(merges <= job.threads().unwrap());
    }

    #[test]
    fn threads_and_chunks_follow_the_formulas(job in jobs()) {
        let (threads, chunk) = (job.threads().unwrap() as u64, job.chunk().unwrap());
        let block = job.min_chunk.max(job.align);
        // Each of several threads has at least a whole block, and one more thread would not.
        prop_assert!(threads == 1 || threads * block <= job.size);
        prop_assert!(threads == job.max_threads as u64 || (threads + 1) * block > job.size);
        let least = (job.size / (threads * 4)).max(job.min_chunk).max(1);
        prop_assert!(chunk.is_multiple_of(job.align) && chunk >= least && chunk - least < job.align);
    }
}

#[test]
fn smaller_chunks_allow_more_threads() {
    assert_eq!((GIB.threads(), GIB.chunk()), (Ok(16), Ok(4096)));
    let sections = ParallelJob { align: 32_768, min_chunk: 32_768, ..GIB };
    assert_eq!((sections.threads(), sections.chunk()), (Ok(8), Ok(32_768)));
    // The larger of alignment and least chunk decides.
    assert_eq!(ParallelJob { align: 32_768, ..GIB }.threads(), Ok(8));
    assert_eq!(ParallelJob { min_chunk: 32_768, ..GIB }.threads(), Ok(8));
}

#[test]
fn a_job_smaller_than_a_chunk_runs_on_one_thread() {
    let small = ParallelJob { size: 1023, ..GIB };
    assert_eq!((small.threads(), small.chunk()), (Ok(1), Ok(1024)));
    let platform = TestPlatform::new(Workers::Threads);
    let (chunks, merges) = chunks_of(&small, &platform);
    assert_eq!((chunks.len(), chunks[0].clone(), merges), (1, 0..1023, 1));
    assert_eq!(platform.calls(), 0, "no workers were asked for");
}

#[test]
fn a_job_of_one_thread_starts_no_workers() {
    let platform = TestPlatform::new(Workers::Threads);
    let (chunks, merges) = chunks_of(&ParallelJob { max_threads: 1, ..GIB }, &platform);
    assert_eq!((chunks.len(), merges, platform.calls()), (4, 1, 0));
}

#[test]
fn the_caller_takes_all_chunks_if_the_platform_has_no_other_worker() {
    let platform = TestPlatform::new(Workers::Provided);
    let (chunks, merges) = chunks_of(&GIB, &platform);
    assert_eq!((chunks.len(), merges), (64, 1));
    assert_eq!((platform.calls(), platform.started()), (1, 16));
}

#[test]
fn starts_at_most_one_worker_per_chunk() {
    // By the formula 6 threads, but chunks of 1536 rounded up to 2048 are only 5.
    let job = ParallelJob { size: 9216, min_chunk: 1536, ..GIB };
    assert_eq!((job.threads(), job.chunk()), (Ok(6), Ok(2048)));
    let platform = TestPlatform::new(Workers::Threads);
    assert_eq!(chunks_of(&job, &platform).0.len(), 5);
    assert_eq!(platform.started(), 5);
}

#[test]
fn an_empty_job_runs_nothing() {
    for start in [0, 5, u64::MAX] {
        let platform = TestPlatform::new(Workers::Threads);
        assert_eq!(chunks_of(&ParallelJob { start, size: 0, ..GIB }, &platform), (Vec::new(), 0));
        assert_eq!(platform.calls(), 0);
    }
}

#[test]
fn the_first_chunk_ends_at_an_aligned_position() {
    let (chunks, _) = chunks_of(&ParallelJob { start: 1000, size: 3000, ..GIB }, &TestPlatform::new(Workers::Threads));
    assert_eq!(chunks, [1000..1024, 1024..2048, 2048..3072, 3072..4000]);
}

#[test]
fn a_job_may_cover_all_positions() {
    let job = ParallelJob { start: 0, size: u64::MAX, align: 1 << 62, min_chunk: 0, max_threads: 8 };
    assert_eq!((job.threads(), job.chunk()), (Ok(3), Ok(1 << 62)));
    let (chunks, _) = chunks_of(&job, &TestPlatform::new(Workers::Threads));
    assert_eq!((chunks.len(), chunks[3].clone()), (4, 3 << 62..u64::MAX));
    let uncut = ParallelJob { align: 1, min_chunk: u64::MAX, max_threads: usize::MAX, ..job };
    assert_eq!((uncut.threads(), uncut.chunk()), (Ok(1), Ok(u64::MAX)));
}

#[test]
fn refuses_bad_numbers_before_anything_runs() {
    let refused = |job: ParallelJob| {
        let work = |(): &mut (), _| panic!("it ran");
        let error = job.run(&TestPlatform::new(Workers::Threads), NODE, &work, &|()| ()).unwrap_err();
        assert_eq!(error, RunError::Job(job.chunk().unwrap_err()));
        error.to_string()
    };
    assert_eq!(refused(ParallelJob { max_threads: 0, ..GIB }), "a job for 0 threads: must be at least 1");
    assert_eq!(refused(ParallelJob { align: 0, ..GIB }), "chunks aligned to 0: must be a power of two");
    assert_eq!(refused(ParallelJob { align: 48, ..GIB }), "chunks aligned to 48: must be a power of two");
    let overflow = "the job's end or its chunk overflows: both must be at most 2^64 - 1";
    assert_eq!(refused(ParallelJob { start: u64::MAX, size: 1, ..GIB }), overflow);
    assert_eq!(refused(ParallelJob { min_chunk: u64::MAX, ..GIB }), overflow);
}

#[test]
fn a_panic_loses_only_its_chunk_and_is_reported() {
    let merged = Mutex::new(0);
    let work = |sum: &mut u64, chunk: Range<u64>| {
        if chunk.contains(&100_000) {
            resume_unwind(Box::new("on purpose"));
        }
        *sum += chunk.end - chunk.start;
    };
    let platform = TestPlatform::new(Workers::Threads);
    let result = GIB.run(&platform, NODE, &work, &|sum| *merged.lock().unwrap() += sum);
    assert_eq!(result, Err(RunError::WorkerPanicked));
    assert_eq!(*merged.lock().unwrap(), GIB.size - GIB.chunk().unwrap());
}

#[test]
fn a_panic_of_the_only_worker_passes_to_the_caller_after_the_merge() {
    let merged = Mutex::new(0);
    let job = ParallelJob { max_threads: 1, ..GIB };
    let work = |sum: &mut u64, chunk: Range<u64>| {
        if chunk.start != 0 {
            resume_unwind(Box::new("on purpose"));
        }
        *sum += chunk.end - chunk.start;
    };
    let run = || job.run(&TestPlatform::new(Workers::Threads), NODE, &work, &|sum| *merged.lock().unwrap() += sum);
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    assert_eq!(*merged.lock().unwrap(), job.chunk().unwrap());
}

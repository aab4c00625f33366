//! Pre-faulting: several threads make memory present before it is used, and report progress.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use frameyard::ByteSize;

use crate::cpu_list::CpuList;
use crate::sys::mapping::{Mapping, Piece};

/// Progress of pre-faulting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PrefaultProgress {
    /// How much is present so far.
    pub done: ByteSize,
    /// How much will be present at the end.
    pub total: ByteSize,
}

/// Pieces for threads on some CPUs to populate. An empty list means any CPU.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) cpus: CpuList,
    pub(crate) pieces: Vec<Piece>,
}

/// The size populated between two reports: large enough that a report costs nothing in comparison.
const CHUNK: usize = 32 << 20;

/// Chunks that several threads take one by one.
struct Queue {
    cpus: CpuList,
    chunks: Vec<Piece>,
    next: AtomicUsize,
}

impl Queue {
    fn new(share: &Share, chunk: usize) -> Self {
        Self { cpus: share.cpus.clone(), chunks: chunks_of(&share.pieces, chunk), next: AtomicUsize::new(0) }
    }

    fn take(&self) -> Option<Piece> {
        self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }

    /// Populates chunks until none is left, one fails, or the receiver is gone.
    fn work(&self, mapping: &Mapping, done: &mpsc::Sender<io::Result<usize>>) {
        if !self.cpus.is_empty() {
            // Affects only where the zeroing runs: a bound page comes from its node in any case.
            let _ = self.cpus.pin_this_thread();
        }
        while let Some(piece) = self.take() {
            let result = mapping.populate(piece).map(|()| piece.len);
            let failed = result.is_err();
            if done.send(result).is_err() || failed {
                return;
            }
        }
    }
}

/// Makes every page of all shares present, in chunks of whole granules, with at least one thread per share.
///
/// Calls `progress` on the calling thread: once at the start and once for each chunk. The first error stops all
/// threads.
pub(crate) fn populate(
    mapping: &Mapping,
    shares: &[Share],
    granule: usize,
    threads: NonZeroUsize,
    progress: &mut dyn FnMut(PrefaultProgress),
) -> io::Result<()> {
    let total = shares.iter().flat_map(|share| &share.pieces).map(|piece| piece.len as u64).sum();
    let mut report = PrefaultProgress { done: ByteSize(0), total: ByteSize(total) };
    progress(report);
    let queue = |share: &Share| Queue::new(share, CHUNK.max(granule));
    let queues: Vec<Queue> = shares.iter().map(queue).collect();
    thread::scope(|scope| {
        let (sender, done) = mpsc::channel();
        for queue in &queues {
            for _ in 0..threads.get().div_ceil(queues.len()).min(queue.chunks.len()) {
                let sender = sender.clone();
                thread::Builder::new().spawn_scoped(scope, move || queue.work(mapping, &sender))?;
            }
        }
        drop(sender);
        // An early return drops the receiver, which ends each worker at its next chunk.
        for populated in done {
            report.done.0 += populated? as u64;
            progress(report);
        }
        Ok(())
    })
}

fn chunks_of(pieces: &[Piece], chunk: usize) -> Vec<Piece> {
    let cut = |piece: &Piece| {
        let (start, end) = (piece.offset, piece.end());
        (start..end).step_by(chunk).map(move |offset| Piece { offset, len: chunk.min(end - offset) })
    };
    pieces.iter().flat_map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mapping::Source;

    const HUGE: usize = 2 << 20;

    fn threads(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    fn share(pieces: &[Piece]) -> Share {
        Share { cpus: CpuList::default(), pieces: pieces.to_vec() }
    }

    #[test]
    fn several_threads_populate_all_pieces_and_report_each_chunk() {
        let mut mapping = Mapping::reserve(3 * CHUNK + 2 * HUGE, HUGE, 0).unwrap();
        let low = Piece { offset: 0, len: 2 * CHUNK + HUGE };
        let high = Piece { offset: low.len + HUGE, len: CHUNK };
        mapping.back(low, Source::Anonymous).unwrap();
        mapping.back(high, Source::Anonymous).unwrap();
        let cpus = CpuList::of_this_thread().unwrap();
        let shares = [share(&[low]), Share { cpus, pieces: vec![high] }];
        let mut reports = Vec::new();
        populate(&mapping, &shares, HUGE, threads(3), &mut |progress| reports.push(progress)).unwrap();
        let total = (3 * CHUNK + HUGE) as u64;
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), total);
        assert_eq!(reports.len(), 5);
        assert!(reports.is_sorted_by_key(|report| report.done));
        assert!(reports.iter().all(|report| report.total == ByteSize(total)));
        assert_eq!(reports[4].done, ByteSize(total));
    }

    #[test]
    fn a_piece_without_memory_is_an_error() {
        let mapping = Mapping::reserve(4 * CHUNK, HUGE, 0).unwrap();
        let shares = [share(&[mapping.whole()])];
        assert!(populate(&mapping, &shares, HUGE, threads(2), &mut |_| {}).is_err());
    }

    #[test]
    fn a_panicking_report_ends_the_workers() {
        let mut mapping = Mapping::reserve(4 * CHUNK, HUGE, 0).unwrap();
        mapping.back(mapping.whole(), Source::Anonymous).unwrap();
        let shares = [share(&[mapping.whole()])];
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            populate(&mapping, &shares, HUGE, threads(2), &mut |progress| {
                if progress.done.0 != 0 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            })
        }));
        assert!(result.is_err());
    }
}

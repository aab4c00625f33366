//! The speed at which this machine can write memory: the limit for initialising a memory map.

use std::hint::black_box;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use frameyard::page::MapContent;
use frameyard::units::ZoneKind;
use frameyard::{NodeId, ZoneId};

use crate::region::Region;
use crate::sys::map_rates::{Line, stream};

/// The rates at which several threads together write a region.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct MapRates {
    /// With one `memset` of each thread's whole part.
    pub memset_bytes_per_s: f64,
    /// With a loop of streaming stores that write the content a whole cache line at a time; `None` on architectures
    /// without such stores.
    pub stream_bytes_per_s: Option<f64>,
}

/// The byte that `memset` writes for content that is not zero.
const BYTE: u8 = 0xa5;
/// The alignment of each thread's part: a multiple of all common page sizes.
const ALIGN: usize = 1 << 16;

impl MapRates {
    /// Writes the whole region twice, with `threads` threads at once, each in a contiguous part of its own.
    ///
    /// Pages that are not present are faulted in, which makes the rates too low: [pre-fault](Region::prefault) the
    /// region first. Afterwards the region counts as written.
    ///
    /// # Errors
    ///
    /// The system's error if it starts no thread; [`io::ErrorKind::InvalidInput`] for a region that other processes may
    /// write to.
    pub fn measure(region: &mut Region, threads: NonZeroUsize, content: MapContent) -> io::Result<Self> {
        let shared = || io::Error::new(io::ErrorKind::InvalidInput, "the region is shared: a private one is measured");
        let bytes = region.bytes_mut().ok_or_else(shared)?;
        let size = bytes.len() as f64;
        // The stores write lines of the same kind as the initialiser: some CPUs write half-zero lines twice as fast.
        let line: Line = content.words(1, ZoneId::new(NodeId(0), ZoneKind::Normal));
        let byte = if content == MapContent::Zero { 0 } else { BYTE };
        let memset = timed(bytes, threads, &|part| {
            black_box(part).fill(byte);
            true
        })?;
        let streamed = timed(bytes, threads, &|part| stream(black_box(part), &line))?;
        let rate = |elapsed: Duration| size / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(Self { memset_bytes_per_s: memset.map_or(0.0, rate), stream_bytes_per_s: streamed.map(rate) })
    }

    /// The higher of the two rates.
    #[must_use]
    pub fn limit_bytes_per_s(&self) -> f64 {
        self.memset_bytes_per_s.max(self.stream_bytes_per_s.unwrap_or(0.0))
    }
}

/// Runs `write` on all parts at once, on a thread each. Returns the time from the first start to the last end; `None`
/// if one of them wrote nothing.
fn timed(
    bytes: &mut [u8],
    threads: NonZeroUsize,
    write: &(dyn Fn(&mut [u8]) -> bool + Sync),
) -> io::Result<Option<Duration>> {
    let parts = parts(bytes, threads);
    let start = Barrier::new(parts.len());
    let spans = thread::scope(|scope| {
        let spawn = |part| {
            let start = &start;
            let body = move || {
                start.wait();
                let begin = Instant::now();
                let written = write(part);
                written.then(|| (begin, Instant::now()))
            };
            thread::Builder::new().spawn_scoped(scope, body)
        };
        let handles: Vec<_> = parts.into_iter().map(spawn).collect::<io::Result<_>>()?;
        let ends = handles.into_iter().map(|handle| handle.join().expect("writing memory does not panic"));
        Ok::<_, io::Error>(ends.collect::<Option<Vec<(Instant, Instant)>>>())
    })?;
    Ok(spans.and_then(|spans| {
        let begin = spans.iter().map(|(begin, _)| *begin).min()?;
        let end = spans.iter().map(|(_, end)| *end).max()?;
        Some(end - begin)
    }))
}

/// Contiguous parts, as even as their alignment permits; fewer than `threads` if there are too few bytes.
fn parts(bytes: &mut [u8], threads: NonZeroUsize) -> Vec<&mut [u8]> {
    let share = bytes.len().div_ceil(threads.get()).next_multiple_of(ALIGN);
    bytes.chunks_mut(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HugePages;
    use frameyard::ByteSize;

    fn region(size: ByteSize) -> Region {
        Region::zeroed(size, HugePages::Never).unwrap()
    }

    fn threads(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    #[test]
    fn rates_are_measured_for_both_contents_and_the_region_is_written() {
        for count in [1, 3] {
            let mut region = region(ByteSize::mib(4));
            let rates = MapRates::measure(&mut region, threads(count), MapContent::Kernel).unwrap();
            assert!(rates.memset_bytes_per_s > 0.0, "{rates:?}");
            assert_eq!(rates.stream_bytes_per_s.is_some(), cfg!(target_arch = "x86_64"));
            assert!(rates.limit_bytes_per_s() >= rates.memset_bytes_per_s);
            let other = |page: &[u8]| page[16..32].iter().all(|byte| *byte == BYTE);
            assert!(!region.bytes_mut().unwrap().chunks(64).any(|page| other(page) && cfg!(target_arch = "x86_64")));
            assert!(region.bytes_mut().unwrap().chunks(64).all(|page| page[16..32] != [0; 16]));
            MapRates::measure(&mut region, threads(count), MapContent::Zero).unwrap();
            assert!(region.bytes_mut().unwrap().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn parts_cover_the_region_and_start_aligned() {
        let mut bytes = vec![0u8; 5 * ALIGN + 4096];
        let base = bytes.as_ptr() as usize;
        for count in [1, 2, 4, 100] {
            let parts = parts(&mut bytes, threads(count));
            assert!(parts.len() <= count && !parts.is_empty());
            assert!(parts.iter().all(|part| (part.as_ptr() as usize - base).is_multiple_of(ALIGN)));
            assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 5 * ALIGN + 4096);
        }
    }

    #[test]
    fn more_threads_than_parts_are_accepted() {
        let mut region = region(ByteSize::kib(4));
        assert!(MapRates::measure(&mut region, threads(64), MapContent::Zero).unwrap().memset_bytes_per_s > 0.0);
    }
}

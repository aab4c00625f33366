//! The cost of a compare-exchange on a cache line that no other CPU uses: the unit of an allocator's fast paths.

use std::hint::black_box;
use std::time::Instant;

use frameyard::sync::{AtomicU64, Ordering};

use crate::measure::nanoseconds_each;

/// Samples, of which the median counts: an interrupt lengthens one of them.
const SAMPLES: usize = 9;
/// Exchanges in a sample: about 50 µs.
const EXCHANGES: u64 = 10_000;

/// A word on a line of its own. Two lines, because processors prefetch them in pairs.
#[repr(align(128))]
struct OwnLine(AtomicU64);

/// Nanoseconds of one uncontended compare-exchange that succeeds. Each follows the one before at once, so the value includes the
/// wait for its result. `None` where the clock is too coarse to measure it.
///
/// Cost: half a millisecond.
#[must_use]
pub fn compare_exchange_ns() -> Option<f64> {
    let line = OwnLine(AtomicU64::new(0));
    let mut samples: [f64; SAMPLES] = std::array::from_fn(|_| sample(&line.0));
    samples.sort_by(f64::total_cmp);
    Some(samples[SAMPLES / 2]).filter(|median| *median > 0.0)
}

fn sample(word: &AtomicU64) -> f64 {
    let word = black_box(word);
    word.store(0, Ordering::Relaxed);
    let mut failed = 0;
    let start = Instant::now();
    for value in 0..EXCHANGES {
        // On x86-64 each ordering is the same locked instruction.
        failed += u64::from(word.compare_exchange(value, value + 1, Ordering::Relaxed, Ordering::Relaxed).is_err());
    }
    let elapsed = start.elapsed();
    assert_eq!((failed, word.load(Ordering::Relaxed)), (0, EXCHANGES), "no other thread knows the word");
    nanoseconds_each(elapsed, EXCHANGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_instruction_takes_longer_than_none_and_less_than_a_system_call() {
        let cost = compare_exchange_ns().unwrap();
        assert!((0.2..10_000.0).contains(&cost), "{cost}");
    }
}

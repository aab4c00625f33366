//! Histograms of waiting and holding times, and of pages moved per hold: one bucket per power of two.

use crate::sync::{AtomicU64, Ordering, all_atomic};

/// Buckets of a histogram of times: up to 32 ns, then to each power of two, to 0.27 s, and the rest. (One in models.)
const TIME_BUCKETS: usize = if cfg!(loom) { 1 } else { 25 };
/// Buckets of a histogram of pages: 1, 2, 4 and so on to 65536, and the rest.
const PAGE_BUCKETS: usize = if cfg!(loom) { 1 } else { 18 };

/// Counts nanoseconds.
pub(crate) type TimeHistogram = Histogram<5, TIME_BUCKETS>;
/// Counts pages.
pub(crate) type PageHistogram = Histogram<0, PAGE_BUCKETS>;

/// Counts of values by bucket. The bound of the first bucket is 2 to the power of `FIRST`, each next bound is twice as large,
/// and the last bucket has none. Only the holder of the lock writes, with plain loads and stores.
#[derive(Debug)]
pub(crate) struct Histogram<const FIRST: u32, const BUCKETS: usize>([AtomicU64; BUCKETS]);

all_atomic!(TimeHistogram { 0 });
all_atomic!(PageHistogram { 0 });

impl<const FIRST: u32, const BUCKETS: usize> Default for Histogram<FIRST, BUCKETS> {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const FIRST: u32, const BUCKETS: usize> Histogram<FIRST, BUCKETS> {
    const FITS: () = assert!(BUCKETS <= HistogramCounts::MOST, "a reading has room for all buckets");

    /// A reading without values.
    const EMPTY: HistogramCounts = HistogramCounts { first: FIRST, len: BUCKETS, counts: [0; HistogramCounts::MOST] };

    /// Counts a value.
    pub(crate) fn record(&self, value: u64) {
        super::add(&self.0[bucket_of(value, FIRST, BUCKETS)], 1);
    }

    /// Reads the buckets.
    pub(crate) fn read(&self) -> HistogramCounts {
        const { Self::FITS }
        let mut counts = Self::EMPTY;
        for (count, bucket) in counts.counts.iter_mut().zip(&self.0) {
            *count = bucket.load(Ordering::Relaxed);
        }
        counts
    }
}

/// The bucket that counts a value, of `buckets` whose first bound is 2 to the power of `first`.
#[inline(always)]
fn bucket_of(value: u64, first: u32, buckets: usize) -> usize {
    let exponent = u64::BITS - value.saturating_sub(1).leading_zeros();
    (exponent.saturating_sub(first) as usize).min(buckets - 1)
}

/// A reading of a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HistogramCounts {
    first: u32,
    len: usize,
    counts: [u64; Self::MOST],
}

impl HistogramCounts {
    const MOST: usize = 25;

    /// An empty histogram of nanoseconds: bounds of 32 ns, then each power of two up to 0.27 s.
    #[must_use]
    pub fn of_times() -> Self {
        TimeHistogram::EMPTY
    }

    /// An empty histogram of pages: bounds of 1, 2, 4 and so on up to 65536.
    #[must_use]
    pub fn of_pages() -> Self {
        PageHistogram::EMPTY
    }

    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        let count = &mut self.counts[bucket_of(value, self.first, self.len)];
        *count = count.wrapping_add(1);
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// The buckets: the upper bound of each (`None` for the last) and the number of values in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> + use<> {
        let Self { first, len, counts } = *self;
        (0..len).map(move |at| ((at + 1 < len).then(|| 1 << (first + at as u32)), counts[at]))
    }

    /// As [`buckets`](Self::buckets), but each with the number of values in it and in all buckets before it.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> + use<> {
        self.buckets().scan(0u64, |sum, (bound, count)| {
            *sum = sum.wrapping_add(count);
            Some((bound, *sum))
        })
    }

    /// The sum of this reading and another one with the same bounds.
    ///
    /// # Panics
    ///
    /// If the bounds differ: times and pages cannot be added.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        assert!((self.first, self.len) == (other.first, other.len), "histograms of the same bounds are added");
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count = count.wrapping_add(other));
        self
    }

    /// The difference from an earlier reading of the same histogram.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.counts.iter_mut().zip(earlier.counts).for_each(|(count, earlier)| *count = count.wrapping_sub(earlier));
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_it_does_not_exceed() {
        for (value, bound) in [(0, 32), (32, 32), (33, 64), (64, 64), (65, 128), (1 << 28, 1 << 28)] {
            let histogram = TimeHistogram::default();
            histogram.record(value);
            let mut counted = HistogramCounts::of_times();
            counted.record(value);
            assert_eq!(histogram.read(), counted);
            let found: Vec<_> = counted.buckets().filter(|(_, count)| *count > 0).collect();
            assert_eq!(found, [(Some(bound), 1)], "{value}");
        }
        for value in [(1 << 28) + 1, u64::MAX] {
            let histogram = TimeHistogram::default();
            histogram.record(value);
            assert_eq!(histogram.read().buckets().last(), Some((None, 1)), "{value}");
        }
    }

    #[test]
    fn cumulative_buckets_end_with_all_values() {
        let histogram = PageHistogram::default();
        for pages in [1, 2, 3, 63, 64, 100_000] {
            histogram.record(pages);
        }
        let counts = histogram.read();
        let first: Vec<_> = counts.cumulative().take(4).collect();
        assert_eq!(first, [(Some(1), 1), (Some(2), 2), (Some(4), 3), (Some(8), 3)]);
        assert_eq!(counts.cumulative().last(), Some((None, counts.count())));
        assert_eq!(counts.and(&counts).count(), 12);
        assert_eq!(counts.and(&counts).since(&counts), counts);
    }
}

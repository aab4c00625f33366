//! Statistics of samples, and durations in nanoseconds.

use std::time::Duration;

/// Median, minimum and maximum of a set of samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The middle sample, or the mean of the two middle ones.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of samples; `None` for an empty set.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        let upper = samples.len() / 2;
        let lower = (samples.len() - 1) / 2;
        Some(Self { median: f64::midpoint(samples[lower], samples[upper]), min, max })
    }
}

/// Mean nanoseconds per operation of `operations` that together took `duration`.
#[must_use]
pub fn nanoseconds_each(duration: Duration, operations: u64) -> f64 {
    duration.as_nanos() as f64 / operations as f64
}

/// A duration in whole nanoseconds; `u64::MAX` after 584 years.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_two() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_duration_is_shared_among_its_operations() {
        assert_eq!(nanoseconds_each(Duration::from_micros(3), 100), 30.0);
    }
}

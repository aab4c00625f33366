//! Samples and what is said of them.

use std::time::Duration;

/// Median, least and most of some samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// The spread of some samples; `None` where there are none.
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

/// Nanoseconds an operation took, of a duration for so many.
#[must_use]
pub fn nanoseconds_each(duration: Duration, operations: u64) -> f64 {
    duration.as_nanos() as f64 / operations as f64
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

//! The times of some requests: their mean, the longest, and the one that 99 % do not exceed.

/// Nanoseconds of requests, the shortest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestTimes(Vec<u64>);

impl RequestTimes {
    /// Of samples in any order.
    #[must_use]
    pub fn new(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        Self(samples)
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The mean; 0 without samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / self.count().max(1) as f64
    }

    /// The longest; 0 without samples.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }

    /// The shortest time that at least `percent` percent of the requests do not exceed; 0 without samples.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> u64 {
        let rank = (self.count() * u64::from(percent)).div_ceil(100);
        self.0.get((rank.max(1) - 1) as usize).copied().unwrap_or_else(|| self.longest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_sample_that_so_many_do_not_exceed() {
        let times = RequestTimes::new((1..=200).rev().collect());
        assert_eq!((times.percentile(99), times.percentile(50), times.longest()), (198, 100, 200));
        assert_eq!((times.percentile(0), times.percentile(100), times.mean()), (1, 200, 100.5));
    }

    #[test]
    fn without_samples_all_times_are_zero() {
        let none = RequestTimes::default();
        assert_eq!((none.count(), none.percentile(99), none.longest(), none.mean()), (0, 0, 0, 0.0));
    }
}

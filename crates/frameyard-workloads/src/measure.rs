//! Durations in nanoseconds.

use std::time::Duration;

/// A duration in whole nanoseconds; `u64::MAX` after 584 years.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Mean nanoseconds per operation of `operations` that together took `duration`.
#[must_use]
pub fn nanoseconds_each(duration: Duration, operations: u64) -> f64 {
    duration.as_nanos() as f64 / operations as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shared_among_its_operations() {
        assert_eq!(nanoseconds_each(Duration::from_micros(3), 100), 30.0);
    }
}

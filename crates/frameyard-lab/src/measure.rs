//! Statistics of samples.

/// Median, minimum and maximum of some samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread<T = f64> {
    /// The middle sample, or the mean of the two in the middle.
    pub(crate) median: T,
    /// The minimum.
    pub(crate) min: T,
    /// The maximum.
    pub(crate) max: T,
}

impl Spread {
    /// The spread of some samples; `None` where there are none.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        let upper = samples.len() / 2;
        let lower = (samples.len() - 1) / 2;
        Some(Self { median: f64::midpoint(samples[lower], samples[upper]), min, max })
    }

    /// The spread with each number converted.
    pub(crate) fn map<T>(self, convert: impl Fn(f64) -> T) -> Spread<T> {
        Spread { median: convert(self.median), min: convert(self.min), max: convert(self.max) }
    }
}

/// Mean and standard deviation of some samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Deviation {
    /// The mean.
    pub(crate) mean: f64,
    /// The standard deviation of the population that the samples come from, in percent of the mean; `None` for one sample.
    pub(crate) percent: Option<f64>,
}

impl Deviation {
    /// Those of some samples; `None` where there are none.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let percent = (samples.len() > 1).then(|| (squares / (count - 1.0)).sqrt() / mean * 100.0);
        (!samples.is_empty()).then_some(Self { mean, percent })
    }
}

/// The runs in the order of a value, the median run first: a row describes that run.
pub(crate) fn median_first<R>(mut runs: Vec<R>, value: impl Fn(&R) -> f64) -> (R, Vec<R>) {
    runs.sort_by(|one, other| value(one).total_cmp(&value(other)));
    let median = runs.remove((runs.len() - 1) / 2);
    (median, runs)
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
    fn a_deviation_is_that_of_the_population_in_percent_of_the_mean() {
        let deviation = Deviation::of(&[8.0, 10.0, 12.0]).unwrap();
        assert_eq!((deviation.mean, deviation.percent), (10.0, Some(20.0)));
        assert_eq!(Deviation::of(&[3.0]), Some(Deviation { mean: 3.0, percent: None }));
        assert_eq!(Deviation::of(&[]), None);
    }

    #[test]
    fn the_median_run_comes_first() {
        assert_eq!(median_first(vec![5, 1, 3, 9], |run| f64::from(*run)), (3, vec![1, 5, 9]));
    }
}

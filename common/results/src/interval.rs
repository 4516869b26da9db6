//! Confidence intervals: the uncertainty of a figure. Results, tables and reports express spread in
//! no other way.

use crate::stats;

/// The 95 % confidence interval of a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the interval's width.
    pub half: f64,
}

impl Interval {
    /// Interval of the rate `mean`, measured in `trials` trials with equally many of the `samples`
    /// each. `None` if there is only one value.
    ///
    /// Several trials: interval of their means, which are independent. One trial: interval of its
    /// samples, which shows how steady the rate was, not how well it repeats.
    pub fn of_rate(mean: f64, samples: &[f64], trials: usize) -> Option<Self> {
        let of_trials = trials > 1 && samples.len().is_multiple_of(trials) && !samples.is_empty();
        let means: Vec<f64>;
        let values = if of_trials {
            means = samples.chunks(samples.len() / trials).map(stats::mean).collect();
            &means[..]
        } else {
            samples
        };
        Some(Self { mean, half: half_width(values)? })
    }

    /// Interval of the mean of `values`; `None` if there are fewer than two.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self { mean: stats::mean(values), half: half_width(values)? })
    }

    /// Lower end; at least zero, because rates are not negative.
    pub fn low(self) -> f64 {
        (self.mean - self.half).max(0.0)
    }

    /// Upper end.
    pub fn high(self) -> f64 {
        self.mean + self.half
    }

    /// Returns true if the intervals overlap: both could be the same figure.
    pub fn overlaps(self, other: Self) -> bool {
        self.low() <= other.high() && other.low() <= self.high()
    }

    /// Half the width in percent of the mean.
    pub fn percent(self) -> f64 {
        100.0 * self.half / self.mean.max(f64::MIN_POSITIVE)
    }

    /// The interval multiplied by `factor`, to change its unit.
    pub fn scaled(self, factor: f64) -> Self {
        Self { mean: self.mean * factor, half: self.half * factor }
    }
}

fn half_width(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    Some(student(freedom) * stats::standard_error(values)?)
}

/// Quantile of Student's t distribution for a two-sided interval of 95 %.
fn student(freedom: usize) -> f64 {
    const FIRST: [f64; 10] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match FIRST.get(freedom - 1) {
        Some(quantile) => *quantile,
        // Cornish and Fisher's expansion around the normal distribution's quantile.
        None => {
            let (z, n) = (1.959_964_f64, freedom as f64);
            let [z3, z5, z7] = [3, 5, 7].map(|power| z.powi(power));
            let third = 3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z;
            z + (z3 + z) / (4.0 * n)
                + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n)
                + third / (384.0 * n * n * n)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_width_matches_student_table() {
        assert_eq!(half_width(&[]), None);
        assert_eq!(half_width(&[5.0]), None);
        // Two values: 12.706 times a standard error of 1.
        assert!((half_width(&[4.0, 6.0]).unwrap() - 12.706).abs() < 1e-9);
        assert_eq!(half_width(&[3.0; 7]), Some(0.0));
        for (freedom, quantile) in [(11, 2.201), (19, 2.093), (30, 2.042), (120, 1.980)] {
            assert!((student(freedom) - quantile).abs() < 5e-4, "{freedom}");
        }
    }

    #[test]
    fn interval_is_over_trials_else_over_samples() {
        let of = |trials| Interval::of_rate(5.0, &[3.9, 4.1, 5.9, 6.1], trials).unwrap().half;
        assert!((of(2) - 12.706).abs() < 1e-9, "of the means 4 and 6");
        assert!(
            (of(1) - 3.182 * stats::standard_error(&[3.9, 4.1, 5.9, 6.1]).unwrap()).abs() < 1e-9
        );
        assert_eq!(Interval::of_rate(5.0, &[5.0], 1), None);
    }

    #[test]
    fn intervals_that_touch_overlap() {
        let interval = |mean, half| Interval { mean, half };
        assert!(interval(10.0, 1.0).overlaps(interval(12.0, 1.0)));
        assert!(!interval(10.0, 1.0).overlaps(interval(12.1, 1.0)));
        assert!(interval(10.0, 5.0).overlaps(interval(10.0, 0.0)));
    }
}

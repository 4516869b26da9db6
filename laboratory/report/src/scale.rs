//! Scales: positions of values on an axis, and the ticks beside it.

/// An axis: maps values from `min` to `max` to positions from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    min: f64,
    max: f64,
    log: bool,
}

/// Ratio of the largest to the smallest value above which a scale is logarithmic.
const DECADES_APART: f64 = 25.0;

impl Scale {
    /// Creates a scale from zero to just above `values`, or a logarithmic one around values that
    /// are far apart.
    pub(crate) fn fitting(values: impl Iterator<Item = f64>) -> Self {
        let above = values.filter(|value| *value > 0.0);
        let (min, max) = above
            .fold((f64::INFINITY, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
        if min.is_finite() && max / min > DECADES_APART {
            Self::log(min, max)
        } else {
            Self::linear(max)
        }
    }

    /// Creates a linear scale from zero to the next round number above `max`.
    pub(crate) fn linear(max: f64) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = step(max);
        Self { min: 0.0, max: (max / step).ceil() * step, log: false }
    }

    /// Creates a logarithmic scale from the round number below `min` to the one above `max`; both
    /// are above zero.
    pub(crate) fn log(min: f64, max: f64) -> Self {
        let round = |value: f64, up: bool| {
            let decade = 10f64.powf(value.log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
            // The factors keep a value that is already round, despite rounding errors.
            let found = if up {
                steps.into_iter().find(|step| *step >= value * 0.999_999)
            } else {
                steps.into_iter().rev().find(|step| *step <= value * 1.000_001)
            };
            found.unwrap_or(value)
        };
        let (min, max) = (round(min, false), round(max, true));
        Self { min, max: if max > min { max } else { min * 10.0 }, log: true }
    }

    /// Returns true if the scale is logarithmic: equal distances are equal ratios.
    pub(crate) fn is_log(self) -> bool {
        self.log
    }

    /// Returns the position of `value`, always in 0 to 1, for any input.
    pub(crate) fn position(self, value: f64) -> f64 {
        let position = if self.log {
            (value.max(self.min) / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        if position.is_finite() { position.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns the position of `value` in percent of the axis.
    pub(crate) fn percent(self, value: f64) -> f64 {
        100.0 * self.position(value)
    }

    /// Returns round values along the axis, about eight at most.
    pub(crate) fn ticks(self) -> Vec<f64> {
        if !self.log {
            let step = step(self.max);
            let count = (self.max / step).round() as usize;
            return (0..=count).map(|tick| tick as f64 * step).collect();
        }
        let decades = (self.max / self.min).log10();
        let steps: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((decades / 8.0).ceil() as i32).max(1);
        let (first, last) = (self.min.log10().floor() as i32, self.max.log10().ceil() as i32);
        (first..=last)
            .filter(|decade| (decade - first) % every == 0)
            .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
            .filter(|tick| (self.min * 0.999_999..=self.max * 1.000_001).contains(tick))
            .collect()
    }
}

/// Returns 1, 2 or 5 times a power of ten, of which four to eight make `max`.
fn step(max: f64) -> f64 {
    let decade = 10f64.powf((max / 8.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    steps.into_iter().find(|step| max / step <= 8.0).unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_scale_starts_at_zero_and_ends_on_tick() {
        let scale = Scale::fitting([3.0, 37.6].into_iter());
        assert!(!scale.is_log());
        assert_eq!(scale.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]);
        assert_eq!(
            (scale.position(0.0), scale.position(20.0), scale.position(40.0)),
            (0.0, 0.5, 1.0)
        );
    }

    #[test]
    fn wide_range_gets_log_scale() {
        let scale = Scale::fitting([0.6, 38.0].into_iter());
        assert!(scale.is_log());
        let ticks = scale.ticks();
        let expected = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
        assert_eq!(ticks.len(), expected.len(), "{ticks:?}");
        assert!(ticks.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{ticks:?}");
        assert_eq!((scale.position(0.5), scale.position(50.0)), (0.0, 1.0));
        assert!((scale.position(5.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn scale_positions_stay_within_bounds() {
        for values in [vec![], vec![0.0], vec![1e-300, 1e14], vec![5.0], vec![0.0, 1e6]] {
            let scale = Scale::fitting(values.iter().copied());
            for value in [0.0, -1.0, 1e300, f64::NAN, f64::INFINITY].iter().chain(&values) {
                assert!((0.0..=1.0).contains(&scale.position(*value)), "{values:?} {value}");
            }
            assert!((1..=20).contains(&scale.ticks().len()), "{values:?}: {:?}", scale.ticks());
        }
    }
}

//! Formats numbers for people: three digits, and a unit that fits.

use dray_results::Interval;

/// A unit, and the number of base units in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub(crate) name: &'static str,
    pub(crate) factor: f64,
}

const RATES: [Unit; 3] = [
    Unit { name: "Mpps", factor: 1e6 },
    Unit { name: "kpps", factor: 1e3 },
    Unit { name: "pps", factor: 1.0 },
];
const TIMES: [Unit; 4] = [
    Unit { name: "s", factor: 1e9 },
    Unit { name: "ms", factor: 1e6 },
    Unit { name: "µs", factor: 1e3 },
    Unit { name: "ns", factor: 1.0 },
];
/// Gigabits per second.
pub const GIGABITS: Unit = Unit { name: "Gb/s", factor: 1e9 };

/// Returns the unit for frames per second in a chart whose largest figure is `max`.
pub(crate) fn rate_unit(max: f64) -> Unit {
    fitting(&RATES, max)
}

/// Returns the unit for a time of `ns` nanoseconds.
pub(crate) fn time_unit(ns: f64) -> Unit {
    fitting(&TIMES, ns)
}

fn fitting(units: &[Unit], max: f64) -> Unit {
    let found = units.iter().find(|unit| max >= unit.factor);
    *found.unwrap_or(&units[units.len() - 1])
}

impl Unit {
    /// Unit of numbers that count something.
    pub(crate) const NONE: Self = Self { name: "", factor: 1.0 };

    /// Formats `value`, given in base units, in this unit.
    pub(crate) fn of(self, value: f64) -> String {
        digits(value / self.factor)
    }

    /// Formats `value` in this unit, followed by the unit's name.
    pub fn with(self, value: f64) -> String {
        format!("{} {}", self.of(value), self.name)
    }
}

/// Formats half an interval as a percentage of its mean: the meaning of ± in all
/// tables, reports and comparisons.
pub(crate) fn spread(interval: Option<Interval>) -> String {
    interval.map_or("-".to_owned(), |interval| match interval.percent() {
        percent if percent < 99.95 => format!("{percent:.1}"),
        percent => format!("{:.0}", percent.min(999.0)),
    })
}

/// Formats half an interval beside its mean; empty without an interval.
pub fn plus_minus(interval: Option<Interval>) -> String {
    interval.map_or(String::new(), |_| format!("±{} %", spread(interval)))
}

/// Formats frames per second with a unit that fits.
pub fn rate(pps: f64) -> String {
    rate_unit(pps).with(pps)
}

/// Formats nanoseconds with a unit that fits.
pub fn time(ns: f64) -> String {
    time_unit(ns).with(ns)
}

/// Formats three significant digits, and always all digits before the point.
pub fn digits(value: f64) -> String {
    let places = match value.abs() {
        0.0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.001 => 3,
        _ => return format!("{value:.1e}"),
    };
    format!("{value:.places$}")
}

/// Formats a value as a whole number; empty without a value.
pub(crate) fn whole(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| format!("{value:.0}"))
}

/// Formats a number without trailing zeros, as on an axis.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a share in percent. A value other than zero is never rounded to zero.
pub fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0".to_owned(),
        p if p < 0.01 => "<0.01".to_owned(),
        p if p < 10.0 => format!("{p:.2}"),
        p => format!("{p:.1}"),
    }
}

/// Formats a change in percent, with its sign.
pub(crate) fn change(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_fitting_unit() {
        assert_eq!(rate(37_558_821.0), "37.6 Mpps");
        assert_eq!(rate(999_960.0), "1000 kpps");
        assert_eq!(rate(12.0), "12.0 pps");
        assert_eq!(rate(0.0), "0 pps");
        assert_eq!(time(857.0), "857 ns");
        assert_eq!(time(1_728_511.0), "1.73 ms");
        assert_eq!(digits(0.000_05), "5.0e-5");
        let interval = |half| Some(Interval { mean: 200.0, half });
        let all = [None, interval(0.0), interval(0.7), interval(400.0)].map(plus_minus);
        assert_eq!(all, ["", "±0.0 %", "±0.3 %", "±200 %"]);
        assert_eq!(GIGABITS.with(7.75e9), "7.75 Gb/s");
    }

    #[test]
    fn tick_labels_are_short_and_loss_never_rounds_to_zero() {
        assert_eq!((plain(2.50), plain(10.0), plain(0.0)), ("2.5".into(), "10".into(), "0".into()));
        assert_eq!(percent(0.0), "0");
        assert_eq!(percent(1e-9), "<0.01");
        assert_eq!(percent(0.5), "50.0");
        assert_eq!(change(1.05), "+5.0 %");
    }
}

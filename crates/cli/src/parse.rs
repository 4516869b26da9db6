//! Parsers for values on the command line.

use std::time::Duration;

/// Parses frames per second: a number above zero, optionally with the suffix `k`, `M` or `G`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        Some(b'G') => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let rate = digits.parse::<f64>().ok().map(|number| number * factor);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
        "give frames per second, more than 0, for example 100000, 100k or 1.5M".to_owned()
    })
}

/// Parses a duration: a number of seconds, or with units as in `500ms`, `1m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let duration = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => humantime::parse_duration(text).ok(),
    };
    duration
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "give a time above 0, for example 10, 10s, 500ms or 1m".to_owned())
}

/// A list of CPUs such as `2,3` or `2-5`, in the given order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuList(pub(crate) Vec<usize>);

pub(crate) fn cpus(text: &str) -> Result<CpuList, String> {
    let parts: Option<Vec<_>> =
        text.split(',').map(dray_datapath::placement::parse_ranges).collect();
    parts
        .map(|parts| parts.concat())
        .filter(|cpus| !cpus.is_empty())
        .map(CpuList)
        .ok_or_else(|| "give a list of CPUs, for example 2,3 or 2-5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_accepts_suffixes_and_rejects_zero() {
        assert_eq!(rate("100k"), Ok(100e3));
        assert_eq!(rate("1.5M"), Ok(1.5e6));
        assert_eq!(rate("7"), Ok(7.0));
        for wrong in ["0", "-1", "", "k", "1kk", "inf", "NaN", "1e400", "0M", "½"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn duration_accepts_seconds_or_units() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "", "1e30", "soon", "0s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cpu_list_keeps_its_order() {
        assert_eq!(cpus("3,0-1"), Ok(CpuList(vec![3, 0, 1])));
        for wrong in ["", ",", "a", "1-", "5-2"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }
}

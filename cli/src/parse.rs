//! Parsers for values on the command line.

use std::time::Duration;

/// A rate of frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// Frames per second.
    Frames(f64),
    /// Bits per second, from destination MAC to end of payload.
    Bits(f64),
}

impl Rate {
    /// Returns the rate in frames per second, for frames of `size` bytes.
    pub(crate) fn frames_per_second(self, size: usize) -> f64 {
        match self {
            Self::Frames(rate) => rate,
            Self::Bits(rate) => rate / (size as f64 * 8.0),
        }
    }
}

/// Parses frames per second, such as `20k` or `20kpps`, or bits per second, such as `1Gbit`.
pub(crate) fn offered(text: &str) -> Result<Rate, String> {
    let rate = match text.strip_suffix("bit") {
        Some(number) => above_zero(number).map(Rate::Bits),
        None => frames(text).map(Rate::Frames),
    };
    rate.ok_or_else(|| {
        if let Some(number) = text.strip_suffix('G').filter(|_| above_zero(text).is_some()) {
            return format!("frames or bits? give {number}Gbit, or {number}Gpps");
        }
        "give frames per second, such as 20000, 20k or 1.5Mpps, or bits per second, such as 10Gbit, \
         more than 0"
            .to_owned()
    })
}

/// Parses bits per second as iperf3 does: `10G`, `500M`, `1.5m`.
pub(crate) fn bits(text: &str) -> Result<Rate, String> {
    let number = text.strip_suffix("bit").unwrap_or(text);
    // above_zero knows these letters in one case each.
    let number = number.replace('K', "k").replace('m', "M").replace('g', "G");
    above_zero(&number)
        .map(Rate::Bits)
        .ok_or_else(|| "give bits per second, more than 0, such as 500M or 10G".to_owned())
}

/// Parses frames per second: a number above zero, optionally with the suffix `k` or `M`, and `pps`.
/// Without a unit, `10G` would most likely stand for bits.
pub(crate) fn frames(text: &str) -> Option<f64> {
    match text.strip_suffix("pps") {
        Some(number) => above_zero(number),
        None => above_zero(text).filter(|_| !text.ends_with('G')),
    }
}

/// Parses a number above zero, optionally with the suffix `k`, `M` or `G`.
fn above_zero(text: &str) -> Option<f64> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        Some(b'G') => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let number = digits.parse::<f64>().ok().map(|number| number * factor);
    number.filter(|number| number.is_finite() && *number > 0.0)
}

/// Parses a size in bytes, such as 4096, 64k, 100M or 1G, in powers of 1000.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    above_zero(text)
        .filter(|size| *size >= 1.0 && *size < 1e18)
        .map(|size| size as u64)
        .ok_or_else(|| "give a number of bytes, such as 64k, 100M or 1G".to_owned())
}

/// Time between two lines; `None`: no lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Option<Duration>);

/// Parses an interval: 0, or a time from 0.1 seconds to an hour.
pub(crate) fn interval(text: &str) -> Result<Interval, String> {
    if text.parse() == Ok(0.0) {
        return Ok(Interval(None));
    }
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    let time = duration(text).ok().filter(|time| allowed.contains(time));
    time.map(|time| Interval(Some(time)))
        .ok_or_else(|| "give 0.1 to 3600 seconds, or 0 for no lines".to_owned())
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
    fn frames_accept_suffixes_and_reject_zero() {
        for (text, rate) in [("100k", 100e3), ("1.5M", 1.5e6), ("20kpps", 20e3), ("7", 7.0)] {
            assert_eq!(frames(text), Some(rate), "{text}");
        }
        for wrong in ["0", "-1", "", "k", "1kk", "inf", "NaN", "1e400", "0M", "½", "pps", "10G"] {
            assert_eq!(frames(wrong), None, "{wrong}");
            assert!(offered(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rate_counts_frames_or_bits() {
        assert_eq!(offered("20k"), Ok(Rate::Frames(20e3)));
        assert_eq!(offered("1Gpps"), Ok(Rate::Frames(1e9)));
        assert_eq!(offered("1.5Gbit"), Ok(Rate::Bits(1.5e9)));
        assert_eq!(Rate::Bits(1e9).frames_per_second(1250), 1e5);
        for wrong in ["1Gb", "bit", "0bit", "1 Gbit", "1Gbit/s", "1Gbps"] {
            let error = offered(wrong).unwrap_err();
            assert!(error.contains("10Gbit") && error.contains("20k"), "{error}");
        }
    }

    #[test]
    fn bitrate_needs_no_unit() {
        for (text, rate) in [("10G", 10e9), ("1.5m", 1.5e6), ("64K", 64e3), ("1Gbit", 1e9)] {
            assert_eq!(bits(text), Ok(Rate::Bits(rate)), "{text}");
        }
        for wrong in ["0", "", "G", "10Gpps", "10T", "-1"] {
            assert!(bits(wrong).is_err_and(|error| error.contains("500M")), "{wrong}");
        }
    }

    #[test]
    fn zero_interval_means_no_lines() {
        assert_eq!(interval("0"), Ok(Interval(None)));
        assert_eq!(interval("0.1"), Ok(Interval(Some(Duration::from_millis(100)))));
        assert_eq!(interval("2s"), Ok(Interval(Some(Duration::from_secs(2)))));
        for wrong in ["-1", "0.01", "3601", "", "often"] {
            assert!(interval(wrong).is_err(), "{wrong}");
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

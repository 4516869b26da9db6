//! Parsers for values that only commands of the laboratory take.

use std::path::PathBuf;
use std::str::FromStr;

/// Parses a whole number.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "give a whole number".to_owned())
}

/// Parses frames per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    crate::parse::frames(text).ok_or_else(|| {
        "give frames per second, more than 0, for example 100000, 100k or 1.5Mpps".to_owned()
    })
}

/// Parses bits per second, with a letter for thousands: `10G`.
pub(crate) fn bits(text: &str) -> Result<u64, String> {
    let units = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let split = units.into_iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of)));
    let (digits, of) = split.unwrap_or((text, 1.0));
    let bits = digits.parse::<f64>().ok().map(|number| number * of);
    bits.filter(|bits| (1e6..=1e12).contains(bits))
        .map(|bits| bits as u64)
        .ok_or_else(|| "give bits per second from 1M to 1000G, for example 10G".to_owned())
}

/// Parses a share: a number such as `0.005`, or a percentage such as `0.5%`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (digits, divisor) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let share = digits.parse::<f64>().ok().map(|number| number / divisor);
    share
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| "give a share from 0 to below 1, for example 0, 0.005 or 0.5%".to_owned())
}

/// Parses the path of a page: a name that promises another format is rejected.
pub(crate) fn page(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        None | Some("html" | "htm") => Ok(path),
        Some(_) => Err("give .html; `dray report` writes other formats".to_owned()),
    }
}

/// Parses how thoroughly a receiver checks frames.
pub(crate) fn check(text: &str) -> Result<dray_traffic::Check, String> {
    match text {
        "whole" => Ok(dray_traffic::Check::Whole),
        "sampled" => Ok(dray_traffic::Check::Sampled),
        _ => Err("give `whole` or `sampled`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_of_frames() {
        assert_eq!(rate("100k"), Ok(100e3));
        assert!(rate("1Gbit").is_err_and(|error| error.contains("frames")));
    }

    #[test]
    fn page_is_html() {
        for right in ["-", "x.html", "/a.b/x", "x.htm"] {
            assert_eq!(page(right), Ok(PathBuf::from(right)));
        }
        assert!(page("x.pdf").is_err_and(|error| error.contains(".html")));
    }

    #[test]
    fn share_accepts_fraction_or_percent() {
        assert_eq!((share("0"), share("0.005"), share("50%")), (Ok(0.0), Ok(0.005), Ok(0.5)));
        for wrong in ["1", "100%", "-0.1", "", "%", "NaN", "a"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}

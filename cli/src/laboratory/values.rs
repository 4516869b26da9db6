//! Parsers for values that only commands of the laboratory take.

use std::str::FromStr;

/// Parses a whole number.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "give a whole number".to_owned())
}

/// Parses a share: a number such as `0.005`, or a percentage such as `0.5%`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (digits, divisor) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let share = digits.parse::<f64>().ok().map(|number| number / divisor);
    share
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| "give a share from 0 to below 1, for example 0, 0.005 or 0.5%".to_owned())
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
    fn share_accepts_fraction_or_percent() {
        assert_eq!((share("0"), share("0.005"), share("50%")), (Ok(0.0), Ok(0.005), Ok(0.5)));
        for wrong in ["1", "100%", "-0.1", "", "%", "NaN", "a"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}

//! Numbers of bytes as text.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `4096`, `512M`, `96T`. K, M, G and T are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Error: the text is not a number of bytes.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} is not a number of bytes: give digits, then optionally K, M, G or T, for example 512G"
)]
pub struct BytesError(String);

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl FromStr for Bytes {
    type Err = BytesError;

    fn from_str(text: &str) -> Result<Self, BytesError> {
        let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
        let (digits, shift) = unit.map_or((text, 0), |(_, n)| (&text[..text.len() - 1], *n));
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok());
        let bytes = number.flatten().and_then(|number: u64| number.checked_mul(1 << shift));
        bytes.map(Self).ok_or_else(|| BytesError(text.to_owned()))
    }
}

impl fmt::Display for Bytes {
    /// Writes the number in the largest unit of which it is a multiple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, n)| self.0 != 0 && self.0.is_multiple_of(1 << n)) {
            Some((letter, shift)) => write!(f, "{}{letter}", self.0 >> shift),
            None => self.0.fmt(f),
        }
    }
}

dray_text::serde_as_text!(Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for (text, bytes) in
            [("0", 0), ("1", 1), ("4K", 4096), ("3M", 3 << 20), ("256G", 1 << 38), ("64T", 1 << 46)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        for text in
            ["", "G", "1KK", "1k", "-1", "+1", "1.5G", "99999999999999999999", "99999999T", "1 G"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}

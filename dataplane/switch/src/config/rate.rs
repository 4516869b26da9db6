//! Rates: frames and bits per second, and how far ahead of them a port may be.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Frames per second, 1 to 10⁹: `1000pps`, `10kpps`, `1.5Mpps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRate(u64);

/// Bits per second, from destination MAC to end of payload, 1000 to 10¹²: `500Mbit`, `10Gbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRate(u64);

/// A limit on frames per second, bits per second, or both: `1Mpps`, `10Gbit`, `10Gbit+1Mpps`. It
/// may have a burst of its own: `10Gbit/50ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Maximum number of frames; at least one of the two limits is given.
    pub frames: Option<FrameRate>,
    /// Maximum number of bits.
    pub bits: Option<BitRate>,
    /// Burst that the limit lets pass at once; `None`: that of the port's key `burst`.
    pub burst: Option<Burst>,
}

/// Time that a port may be ahead of its rates after silence, 1us to 10s: the frames and bytes of
/// this time may pass at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst(Duration);

/// The text is not a valid rate or burst.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what} {given:?}: {allowed}")]
pub struct RateError {
    what: &'static str,
    given: String,
    allowed: &'static str,
}

impl FrameRate {
    /// Returns the number of frames per second.
    pub fn per_second(self) -> u64 {
        self.0
    }
}

impl BitRate {
    /// Returns the number of bits per second.
    pub fn per_second(self) -> u64 {
        self.0
    }
}

impl Burst {
    /// Creates a burst of the nearest allowed time.
    pub fn nearest(time: Duration) -> Self {
        Self(time.clamp(*BURSTS.start(), *BURSTS.end()))
    }

    /// Returns the time.
    pub fn time(self) -> Duration {
        self.0
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self(Duration::from_millis(10))
    }
}

const BURSTS: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(10);

const UNITS: [(char, u64); 3] = [('G', 1_000_000_000), ('M', 1_000_000), ('k', 1000)];

/// Parses a number such as `1.5M`.
fn number(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (digits, factor) = unit.map_or((text, 1), |(_, factor)| (&text[..text.len() - 1], *factor));
    // `f64` also parses texts such as `1e3`, `inf` and `nan`, which are not allowed here.
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let number = digits.parse::<f64>().ok()? * factor as f64;
    (number < 1e15).then_some(number.round() as u64)
}

fn write(f: &mut fmt::Formatter<'_>, number: u64, what: &str) -> fmt::Result {
    match UNITS.iter().find(|(_, factor)| number.is_multiple_of(*factor)) {
        Some((letter, factor)) => write!(f, "{}{letter}{what}", number / factor),
        None => write!(f, "{number}{what}"),
    }
}

impl FromStr for FrameRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let number = text.strip_suffix("pps").and_then(number);
        number.filter(|number| (1..=1_000_000_000).contains(number)).map(Self).ok_or_else(|| {
            RateError {
                what: "rate",
                given: text.to_owned(),
                allowed: "give 1pps to 1Gpps, for example 10kpps; without the key there is no limit",
            }
        })
    }
}

impl FromStr for BitRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let number = text.strip_suffix("bit").and_then(number);
        number.filter(|number| (1000..=1_000_000_000_000).contains(number)).map(Self).ok_or_else(
            || RateError {
                what: "rate",
                given: text.to_owned(),
                allowed: "give 1kbit to 1000Gbit a second, for example 10Gbit; without the key there is \
                          no limit",
            },
        )
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let wrong = |allowed| RateError { what: "rate", given: text.to_owned(), allowed };
        let (limits, burst) = match text.split_once('/') {
            Some((limits, burst)) => (limits, Some(burst.parse()?)),
            None => (text, None),
        };
        let mut rate = Self { burst, ..Self::default() };
        for part in limits.split('+') {
            let twice = match part {
                part if part.ends_with("pps") => rate.frames.replace(part.parse()?).is_some(),
                part if part.ends_with("bit") => rate.bits.replace(part.parse()?).is_some(),
                _ => {
                    return Err(wrong(
                        "give frames or bits per second, or both, for example 1Mpps, 10Gbit or \
                         10Gbit+1Mpps",
                    ));
                }
            };
            if twice {
                return Err(wrong("give one number of frames and one of bits"));
            }
        }
        Ok(rate)
    }
}

impl FromStr for Burst {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let time = humantime::parse_duration(text).ok().filter(|time| BURSTS.contains(time));
        time.map(Self).ok_or_else(|| RateError {
            what: "burst",
            given: text.to_owned(),
            allowed: "give a time from 1us to 10s, for example 10ms",
        })
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, "pps")
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, "bit")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bits, self.frames) {
            (Some(bits), Some(frames)) => write!(f, "{bits}+{frames}")?,
            (Some(bits), None) => bits.fmt(f)?,
            (None, Some(frames)) => frames.fmt(f)?,
            (None, None) => {}
        }
        self.burst.map_or(Ok(()), |burst| write!(f, "/{burst}"))
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

dray_text::serde_as_text!(FrameRate, Rate, Burst);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_round_trip() {
        for (text, again) in [
            ("1pps", "1pps"),
            ("1000pps", "1kpps"),
            ("1.5Mpps", "1500kpps"),
            ("10Gbit", "10Gbit"),
            ("1Mpps+10Gbit", "10Gbit+1Mpps"),
            ("1000Gbit+1Gpps", "1000Gbit+1Gpps"),
            ("1000kbit/20ms", "1Mbit/20ms"),
            ("1Mpps+10Gbit/1s500ms", "10Gbit+1Mpps/1s 500ms"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), again);
            assert_eq!(again.parse::<Rate>(), Ok(rate));
        }
        for text in ["1us", "10ms", "1s 500ms"] {
            assert_eq!(text.parse::<Burst>().unwrap().to_string(), text);
        }
        assert_eq!("1.5kpps".parse::<FrameRate>().unwrap().per_second(), 1500);
    }

    #[test]
    fn invalid_rates_are_refused() {
        for wrong in [
            "",
            "1",
            "pps",
            "0pps",
            "0.1pps",
            "-1pps",
            "1e3pps",
            "infpps",
            "nanpps",
            "2Gpps",
            "..pps",
            "1 kpps",
            "0bit",
            "999bit",
            "1001Gbit",
            "1Tbit",
            "1kpps+",
            "1kpps+2kpps",
            "1bit+1bit",
        ] {
            let message = wrong.parse::<Rate>().unwrap_err().to_string();
            assert!(message.starts_with("rate \"") && message.contains("give "), "{message}");
        }
        for wrong in ["1kpps/", "1kpps/0s", "1kpps/11s", "1kpps/10", "1kpps/1ms/1ms"] {
            let message = wrong.parse::<Rate>().unwrap_err().to_string();
            assert!(message.starts_with("burst \"") && message.contains("give "), "{message}");
        }
        for wrong in ["", "0s", "11s", "10", "100ns"] {
            assert!(wrong.parse::<Burst>().is_err(), "{wrong}");
        }
    }
}

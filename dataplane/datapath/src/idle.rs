//! Idle time after which a data thread sleeps.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Time that a data thread polls without any work before it sleeps until an event descriptor wakes
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Sleeps after this time without work.
    After(Duration),
    /// Never sleeps.
    Never,
}

impl Default for Idle {
    fn default() -> Self {
        Self::After(Duration::from_micros(50))
    }
}

/// The text is not a valid idle time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("idle {0:?}: give a time with its unit, for example 50us or 1ms, or \"never\"")]
pub struct IdleError(String);

impl FromStr for Idle {
    type Err = IdleError;

    fn from_str(text: &str) -> Result<Self, IdleError> {
        match text {
            "never" => Ok(Self::Never),
            time => humantime::parse_duration(time)
                .map(Self::After)
                .map_err(|_| IdleError(text.to_owned())),
        }
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(time) => humantime::format_duration(*time).fmt(f),
            Self::Never => f.write_str("never"),
        }
    }
}

dray_text::serde_as_text!(Idle);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_text_round_trips() {
        for text in ["50us", "1ms", "2s", "0s", "never"] {
            assert_eq!(text.parse::<Idle>().unwrap().to_string(), text);
        }
        for wrong in ["", "50", "-1us", "soon", "Never"] {
            assert!(wrong.parse::<Idle>().is_err(), "{wrong}");
        }
    }
}

//! Handling of frames to reserved addresses.

use std::fmt;
use std::str::FromStr;

/// Frames to reserved addresses are relayed, between ports that have this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved;

impl FromStr for Reserved {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "forward" => Ok(Self),
            _ => Err("give forward, or leave it out: such frames are dropped"),
        }
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("forward")
    }
}

dray_text::serde_as_text!(Reserved);

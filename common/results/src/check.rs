//! Thoroughness of receivers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How thoroughly a receiver checks frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Check every byte.
    #[default]
    Whole,
    /// Check the headers and the test header of every frame, and every byte of one frame in 64,
    /// like a program that works on headers. Fetching all of a long frame from another CPU's
    /// cache takes longer than everything else.
    Sampled,
    /// Check nothing, but fetch the first bytes of every frame, as any program does that uses
    /// received frames. The difference to stricter checks is their own cost.
    Fetched,
    /// Count frames without reading them; with shared memory they stay in the cache of the CPU that
    /// wrote them.
    None,
}

impl Check {
    /// One of this many frames is checked whole.
    pub const SAMPLE: u32 = 64;
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::Sampled => "sampled",
            Self::Fetched => "fetched",
            Self::None => "none",
        })
    }
}

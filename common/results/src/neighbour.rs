//! Behaviours of neighbours.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Behaviour of the neighbour. The roles run on the same CPUs with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Neighbour {
    /// Sleeps.
    Quiet,
    /// Writes all over more memory than the last-level cache holds.
    Noisy,
    /// Like `Noisy`, confined to the smallest part of that cache that the CPU allows; the roles
    /// have the rest.
    Confined,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quiet => "quiet",
            Self::Noisy => "noisy",
            Self::Confined => "confined",
        })
    }
}

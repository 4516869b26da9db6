//! Outcome of negotiations.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Outcome of the negotiation between a port and its peer, or the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Agreement {
    /// The port's URI.
    pub port: String,
    /// Negotiated features in words; for AF_XDP first where the XDP program runs (`xdp native`,
    /// `xdp generic`), then how frames are passed (`copy`, `zero copy`).
    pub features: Vec<String>,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.port, self.features.join(", "))
    }
}

/// Parameters negotiated for ports, by role; roles without such ports are absent.
pub type Agreements = BTreeMap<String, Vec<Agreement>>;

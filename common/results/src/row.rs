//! One row of the results: what was measured, and the outcome.

use serde::{Deserialize, Serialize};

use crate::isolation::Isolation;
use crate::measured::Measured;
use crate::neighbour::Neighbour;
use crate::ports::PortLoad;
use crate::upf::UpfLoad;

/// One technique in one topology at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResultRow {
    /// `LINK/ENDPOINT`, or `LINK` alone for the default endpoint on shared memory.
    pub technique: String,
    /// How the containers are connected.
    pub link: String,
    /// How the programs in the containers do their I/O.
    pub endpoint: String,
    /// Behaviour of a neighbour that shared the last-level cache; absent without a neighbour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<Neighbour>,
    /// Runtime that created the containers.
    #[serde(default = "embedded")]
    pub runtime: String,
    /// `chain`, `fan`, `echo`, `pairs`, `ports` or `upf`.
    pub topology: String,
    /// Number of concurrent sender/receiver pairs.
    #[serde(default = "one")]
    pub pairs: usize,
    /// Number of forwarders between sender and receiver, in a chain or side by side (`fan`).
    pub forwarders: usize,
    /// Load of the user plane function between the roles, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upf: Option<UpfLoad>,
    /// Load of the switch between the roles, if it has many ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortLoad>,
    /// MTU of the links, in bytes.
    #[serde(default = "usual_mtu")]
    pub mtu: u32,
    /// Frame size in bytes, without the frame check sequence.
    pub frame_size: usize,
    /// Frames per burst.
    pub burst: usize,
    /// Flows per link of the sender.
    pub flows: u16,
    /// MAC address pairs that frames rotated through.
    #[serde(default = "one_station")]
    pub stations: u16,
    /// Offered frames per second; absent: as many as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<f64>,
    /// Share of the loss-free rate that `offered_pps` is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_share: Option<f64>,
    /// Receive rate stated by the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_pps: Option<f64>,
    /// Outcome of the row.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Default for results written before there were pairs.
fn one() -> usize {
    1
}

fn one_station() -> u16 {
    1
}

fn usual_mtu() -> u32 {
    1500
}

/// Runtime of containers that dray creates itself.
pub const EMBEDDED: &str = "embedded";

/// Default for results written before there were other runtimes.
fn embedded() -> String {
    EMBEDDED.to_owned()
}

/// Figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Outcome {
    /// The technique ran.
    Measured(Box<Measured>),
    /// The technique ran, and its purpose is to keep containers apart.
    Isolated {
        /// Fate of the frames, and the verdict.
        isolation: Isolation,
    },
    /// The technique could not run.
    Skipped {
        /// Reason.
        skipped: String,
    },
}

impl ResultRow {
    /// Returns the figures, if there are any.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Isolated { .. } | Outcome::Skipped { .. } => None,
        }
    }

    /// Returns the reason why the row was skipped, if it was.
    pub fn skipped(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Skipped { skipped } => Some(skipped),
            _ => None,
        }
    }

    /// Returns the verdict on isolation, for a technique that is meant to keep containers apart.
    pub fn isolation(&self) -> Option<&Isolation> {
        match &self.outcome {
            Outcome::Isolated { isolation } => Some(isolation),
            _ => None,
        }
    }
}

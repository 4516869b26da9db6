//! One entry of the results: what was measured, and what came of it.

use dray_lab::Runtime;
use serde::{Deserialize, Serialize};

use super::Measured;
use crate::isolation::Isolation;
use crate::topology::Shape;
use crate::{Case, Settings, UpfLoad};

/// One technique in one topology at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// Link and endpoint.
    pub technique: String,
    /// How the containers are wired.
    pub link: String,
    /// How the programs in them do their I/O.
    pub endpoint: String,
    /// What a neighbour did that shared the last-level cache: `quiet`, `noisy` or `confined`; absent:
    /// there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<String>,
    /// Who made the containers.
    #[serde(default = "embedded")]
    pub runtime: String,
    /// `chain`, `fan`, `echo`, `pairs` or `upf`.
    pub topology: String,
    /// How many pairs of sender and receiver there were at the same time.
    #[serde(default = "one")]
    pub pairs: usize,
    /// How many forwarders stand between sender and receiver.
    pub forwarders: usize,
    /// What the user plane function between them had to do, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upf: Option<UpfLoad>,
    /// MTU of the links, in bytes.
    #[serde(default = "usual_mtu")]
    pub mtu: u32,
    /// In bytes, without frame check sequence.
    pub frame_size: usize,
    /// Frames per burst.
    pub burst: usize,
    /// Flows per link of the sender.
    pub flows: u16,
    /// Pairs of machines, by their MAC addresses, that frames were between in turn.
    #[serde(default = "one_station")]
    pub stations: u16,
    /// Frames per second that were asked for; absent: as many as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<f64>,
    /// What `offered_pps` is of the loss-free rate, where it is a share of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_share: Option<f64>,
    /// The receive rate that the paper states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_pps: Option<f64>,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What results are of that do not say it: those from before there was anything else.
fn one() -> usize {
    1
}

fn one_station() -> u16 {
    1
}

fn usual_mtu() -> u32 {
    1500
}

/// Results from before there were others.
fn embedded() -> String {
    Runtime::Embedded.to_string()
}

/// Figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The technique ran.
    Measured(Box<Measured>),
    /// It ran, and is there to keep containers apart.
    Isolated {
        /// Whether it did.
        isolation: Isolation,
    },
    /// It could not.
    Skipped {
        /// Why.
        skipped: String,
    },
}

impl ResultRow {
    /// A row for `case`.
    pub fn new(case: &Case, settings: &Settings, mut outcome: Outcome) -> Self {
        if let Outcome::Measured(measured) = &mut outcome {
            let mbps = measured.received_pps * case.size as f64 * 8.0 / 1e6;
            let per_core = mbps / measured.cpu.cores();
            measured.mbps_per_core = per_core.is_finite().then_some(per_core);
        }
        let share_pps = match &outcome {
            Outcome::Measured(measured) => {
                case.share.zip(measured.loss_free_pps).map(|(share, pps)| share * pps)
            }
            _ => None,
        };
        let (topology, forwarders) = match case.shape {
            Shape::Chain(count) => ("chain", count),
            Shape::Fan(count) => ("fan", count),
            Shape::Echo => ("echo", 0),
            Shape::Pairs(_) => ("pairs", 0),
            Shape::Upf(_) => ("upf", 0),
        };
        Self {
            technique: case.technique.to_string(),
            link: case.technique.link.to_string(),
            endpoint: case.technique.endpoint.to_string(),
            neighbour: case.neighbour.map(|neighbour| neighbour.name().to_owned()),
            runtime: case.runtime.to_string(),
            topology: topology.to_owned(),
            pairs: case.shape.pairs(),
            forwarders,
            upf: match case.shape {
                Shape::Upf(load) => Some(load),
                _ => None,
            },
            mtu: case.mtu,
            frame_size: case.size,
            burst: settings.burst,
            flows: settings.flows,
            stations: settings.stations,
            offered_pps: case.rate.or(share_pps),
            load_share: case.share,
            paper_pps: case.paper_pps,
            outcome,
        }
    }

    /// The figures, where there are any.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Isolated { .. } | Outcome::Skipped { .. } => None,
        }
    }

    /// Whether containers were kept apart, where they should have been.
    pub fn isolation(&self) -> Option<&Isolation> {
        match &self.outcome {
            Outcome::Isolated { isolation } => Some(isolation),
            _ => None,
        }
    }
}

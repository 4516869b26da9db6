//! Presentation of results: title and layout of their table.

use serde::{Deserialize, Serialize};

/// Presentation of an experiment's results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Table {
    /// Question that the experiment answers, in one line; empty if unknown.
    pub title: String,
    /// Layout of the table.
    pub layout: Layout,
    /// Source and machine of the paper's figure, or its finding, if the experiment repeats one of a
    /// paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
}

/// Arrangement of an experiment's results in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// A row for each result, with all its figures.
    #[default]
    List,
    /// A row for each endpoint, a column for each link, preceded by the paper's figure.
    EndpointsByLink,
    /// A row for each number of forwarders, a column for each technique.
    ForwardersByTechnique,
    /// Like `forwarders_by_technique`, with the rates at which frames were sent.
    SentByForwarders,
    /// A row for each offered rate, a column for each technique.
    RatesByTechnique,
    /// A row for each technique, a column for each size.
    TechniquesBySize,
    /// A row for each switch with each endpoint, columns for each size, and for what switches need.
    Switches,
    /// The limit of the machine only.
    Limits,
    /// A row for each number of pairs, columns for each technique and MTU: goodput, and loss.
    PairsByTechnique,
    /// A row for each technique and size, columns for each allowed loss.
    DropRates,
    /// A row for each technique, load and rate of a user plane function: its throughput, and its
    /// throughput per busy core.
    UserPlane,
    /// A row for each technique and load of a switch with many ports: its rate, what a frame costs
    /// the switch, and how evenly ports are served.
    Ports,
    /// A row for each technique and size, columns for each runtime.
    Runtimes,
    /// A row for each technique and size, columns for each behaviour of a neighbour.
    Neighbours,
    /// A row for each technique, columns for its needs.
    Needs,
    /// A row for each technique, columns for round-trip times.
    RoundTrips,
    /// A table for each kind of time (one way, round trip) and size: a row for each technique and
    /// load, columns for latencies.
    Latencies,
    /// A row for each technique and size, columns for how closely the receiver checks frames.
    Checks,
}

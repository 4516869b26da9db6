//! Keys of rows: figures are compared only if their keys are equal.

use dray_results::{Check, EMBEDDED, Neighbour, PortLoad, ResultRow, StreamRow, UpfLoad};

use crate::number::rate_unit;

/// Key of a row of frames.
#[derive(PartialEq)]
pub(crate) struct Key<'a> {
    technique: &'a str,
    topology: &'a str,
    forwarders: usize,
    upf: Option<UpfLoad>,
    ports: Option<PortLoad>,
    frame_size: usize,
    burst: usize,
    flows: u16,
    stations: u16,
    pairs: usize,
    mtu: u32,
    runtime: &'a str,
    neighbour: Option<Neighbour>,
    /// `None` if the rate is a share of a rate found in each run.
    offered_pps: Option<f64>,
    load_share: Option<f64>,
    /// Extent of the receivers' checks, if rows differ in nothing else.
    check: Option<Check>,
}

impl<'a> Key<'a> {
    pub(super) fn of(row: &'a ResultRow, tells_checks_apart: bool) -> Self {
        let check = row.measured().map(|measured| measured.check);
        Self {
            technique: &row.technique,
            topology: &row.topology,
            forwarders: row.forwarders,
            upf: row.upf,
            ports: row.ports,
            frame_size: row.frame_size,
            burst: row.burst,
            flows: row.flows,
            stations: row.stations,
            pairs: row.pairs,
            mtu: row.mtu,
            runtime: &row.runtime,
            neighbour: row.neighbour,
            offered_pps: row.offered_pps.filter(|_| row.load_share.is_none()),
            load_share: row.load_share,
            check: check.filter(|_| tells_checks_apart),
        }
    }

    /// Returns true if some of these rows differ only in the extent of the receivers' checks.
    pub(crate) fn checks_differ(rows: &[ResultRow]) -> bool {
        let differ = |row, other| {
            Key::of(row, false) == Key::of(other, false)
                && Key::of(row, true) != Key::of(other, true)
        };
        rows.iter().enumerate().any(|(at, row)| rows[..at].iter().any(|other| differ(row, other)))
    }

    /// Describes the key in words, without default values.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{} {} B", self.technique, self.frame_size);
        if let Some(pps) = self.offered_pps {
            text += &format!(" at {}", rate_unit(pps).with(pps));
        }
        if let Some(share) = self.load_share {
            text += &format!(" at {:.0} % of the loss-free rate", 100.0 * share);
        }
        if let Some(load) = self.ports {
            text += &format!(", {load}");
        } else if self.topology != "chain" {
            text += &format!(" {}", self.topology);
        }
        if let Some(load) = self.upf {
            text += &format!(" {load}");
        }
        text += &in_runtime(self.runtime);
        if let Some(neighbour) = self.neighbour {
            text += &format!(", {neighbour} neighbour");
        }
        if let Some(check) = self.check {
            text += &format!(", check {check}");
        }
        text + &unusual(&[
            (self.forwarders, 0, "forwarders"),
            (usize::from(self.flows), 1, "flows"),
            (if self.ports.is_some() { 1 } else { self.stations.into() }, 1, "stations"),
            (self.pairs, 1, "pairs"),
            (self.mtu as usize, 1500, "B MTU"),
        ])
    }
}

/// Key of a row of streams.
#[derive(PartialEq)]
pub(super) struct StreamKey<'a> {
    technique: &'a str,
    runtime: &'a str,
    pairs: usize,
    streams: u16,
    mtu: u32,
}

impl<'a> StreamKey<'a> {
    pub(super) fn of(row: &'a StreamRow) -> Self {
        let StreamRow { technique, runtime, pairs, streams, mtu, .. } = row;
        Self { technique, runtime, pairs: *pairs, streams: *streams, mtu: *mtu }
    }

    /// Describes the key in words, without default values.
    pub(super) fn describe(&self) -> String {
        let counts = [
            (self.pairs, 1, "pairs"),
            (usize::from(self.streams), 1, "streams per pair"),
            (self.mtu as usize, 1500, "B MTU"),
        ];
        self.technique.to_owned() + &in_runtime(self.runtime) + &unusual(&counts)
    }
}

fn in_runtime(runtime: &str) -> String {
    if runtime == EMBEDDED { String::new() } else { format!(" in {runtime}") }
}

/// Returns the counts that differ from the defaults, each with its noun.
fn unusual(counts: &[(usize, usize, &str)]) -> String {
    let counts = counts.iter().filter(|(count, usual, _)| count != usual);
    counts.map(|(count, _, what)| format!(" {count} {what}")).collect()
}

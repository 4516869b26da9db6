//! Testbeds: containers with everything between them.

use std::path::Path;
use std::time::{Duration, Instant};

use dray_lab::{Cancel, Lab, LabError};
use dray_traffic::Check;

use crate::plan::{Case, Settings};
use crate::streams::StreamTrial;
use crate::topology::{Load, Topology};
use crate::trial::{self, Trial};

/// Containers with everything between them, for cases of one technique in one topology.
pub(super) struct Testbed {
    pub(super) lab: Lab,
    /// One for each pair of sender and receiver; all of one technique.
    pub(super) topologies: Vec<Topology>,
    mtu: u32,
    /// How long it took to build.
    pub(super) set_up: Duration,
}

/// A trial of frames or of byte streams.
pub(super) enum Tried {
    Frames(Trial),
    Streams(StreamTrial),
}

impl Testbed {
    pub(super) fn build(
        case: &Case,
        settings: &Settings,
        program: &Path,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let began = Instant::now();
        let (placement, mtu) = (&settings.placement, case.mtu);
        let mut lab = Lab::new(program.to_owned(), cancel.clone())?;
        let topologies = Topology::build(&mut lab, case.technique, case.shape, placement, mtu)?;
        let set_up = began.elapsed();
        // Of a switch that is not there it would say too much.
        case.technique.check()?;
        Ok(Self { lab, topologies, mtu, set_up })
    }

    /// Whether `case` can be measured here.
    pub(super) fn serves(&self, case: &Case) -> bool {
        let first = &self.topologies[0];
        (first.technique, first.shape, self.mtu) == (case.technique, case.shape, case.mtu)
    }

    /// One trial, and how closely its receiver was to look.
    pub(super) fn measure(
        &mut self,
        case: &Case,
        settings: &Settings,
    ) -> Result<(Tried, Check), LabError> {
        let Settings { burst, flows, stations, .. } = *settings;
        let check = settings.check.unwrap_or(case.technique.usual_check());
        let load = Load { size: case.size, burst, flows, stations, rate: case.rate, check };
        let (lab, topologies, timing) = (&mut self.lab, &self.topologies[..], &settings.timing);
        let tried = if case.technique.endpoint.is_stream() {
            Tried::Streams(trial::run_streams(lab, topologies, &load, timing)?)
        } else {
            Tried::Frames(trial::run(lab, topologies, &load, timing)?)
        };
        Ok((tried, check))
    }
}

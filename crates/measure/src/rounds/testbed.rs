//! Testbeds: containers with everything between them.

use std::path::Path;
use std::time::{Duration, Instant};

use dray_lab::{Cancel, Lab, LabError};
use dray_traffic::Check;

use crate::plan::{Case, Settings};
use crate::streams::StreamTrial;
use crate::topology::{Load, Topology};
use crate::trial::{self, Timing, Trial};

/// Containers with everything between them, for cases of one technique in one topology.
pub(super) struct Testbed {
    pub(super) lab: Lab,
    /// One for each pair of sender and receiver; all of one technique.
    pub(super) topologies: Vec<Topology>,
    mtu: u32,
    /// How long it took to build.
    pub(super) set_up: Duration,
}

impl Testbed {
    pub(super) fn build(
        case: &Case,
        settings: &Settings,
        program: &Path,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let began = Instant::now();
        let (placement, mtu, runtime) = (&settings.placement, case.mtu, settings.runtime);
        let endpoint = case.technique.endpoint;
        endpoint.check_runtime(runtime)?;
        let program = program.to_owned();
        let mut lab = Lab::with_runtime(program, runtime, endpoint.privileges(), cancel.clone())?;
        settings.parent.iter().for_each(|card| lab.use_card(card));
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
        timing: &Timing,
    ) -> Result<(Trial, Check), LabError> {
        let load = load(case, settings);
        let trial = trial::run(&mut self.lab, &self.topologies, &load, timing)?;
        Ok((trial, load.check))
    }

    /// The same of byte streams.
    pub(super) fn measure_streams(
        &mut self,
        case: &Case,
        settings: &Settings,
    ) -> Result<(StreamTrial, Check), LabError> {
        let load = load(case, settings);
        let trial = trial::run_streams(&mut self.lab, &self.topologies, &load, &settings.timing)?;
        Ok((trial, load.check))
    }
}

fn load(case: &Case, settings: &Settings) -> Load {
    let Settings { burst, flows, stations, .. } = *settings;
    let check = settings.check.unwrap_or(case.technique.usual_check());
    Load { size: case.size, burst, flows, stations, rate: case.rate, check }
}

//! Testbeds: containers with everything between them.

use std::path::Path;

use dray_lab::{Cancel, Lab, LabError};
use dray_traffic::Check;

use crate::plan::{Case, Settings};
use crate::topology::{Load, Topology};
use crate::trial::{self, Timing, Trial};

/// Containers with everything between them, for cases of one technique in one topology.
pub(super) struct Testbed {
    pub(super) lab: Lab,
    pub(super) topology: Topology,
}

impl Testbed {
    pub(super) fn build(
        case: &Case,
        settings: &Settings,
        program: &Path,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let Settings { mtu, ref placement, .. } = *settings;
        let mut lab = Lab::new(program.to_owned(), cancel.clone())?;
        settings.parent.iter().for_each(|card| lab.use_card(card));
        let topology = Topology::build(&mut lab, case.technique, case.shape, placement, mtu)?;
        // Of a switch that is not there it would say too much.
        case.technique.check()?;
        Ok(Self { lab, topology })
    }

    /// Whether `case` can be measured here.
    pub(super) fn serves(&self, case: &Case) -> bool {
        (self.topology.technique, self.topology.shape) == (case.technique, case.shape)
    }

    /// One trial, and how closely its receiver was to look.
    pub(super) fn measure(
        &mut self,
        case: &Case,
        settings: &Settings,
        timing: &Timing,
    ) -> Result<(Trial, Check), LabError> {
        let Settings { burst, flows, stations, .. } = *settings;
        let check = settings.check.unwrap_or(case.technique.usual_check());
        let load = Load { size: case.size, burst, flows, stations, rate: case.rate, check };
        let trial = trial::run(&mut self.lab, &self.topology, &load, timing)?;
        Ok((trial, check))
    }
}

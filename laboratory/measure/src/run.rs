//! Observations of a trial, before they are evaluated.

use std::collections::BTreeSet;
use std::time::Duration;

use dray_lab::LabError;
use dray_lab::peer::SwitchKind;
use dray_results::{Agreements, CpuCost, Noise};
use dray_traffic::Report;

use crate::noise;
use crate::reading::{CpuReading, KernelReading};
use crate::topology::{Station, Topology};

/// Observations of a trial.
pub(crate) struct Run {
    /// Time until all roles had their ports open.
    pub(crate) ready_after: Duration,
    /// Negotiated parameters of the roles that reported them.
    pub(crate) agreements: Agreements,
    /// Start of the measurement on the monotonic clock.
    pub(crate) measure_from_ns: u64,
    /// For each topology, the reports of its roles in order.
    pub(crate) reports: Vec<Vec<Report>>,
    /// CPU times at both ends of the measurement.
    pub(crate) cpus: [CpuReading; 2],
    /// Kernel threads before the first frame and after the last.
    pub(crate) kernel: [KernelReading; 2],
}

impl Run {
    /// Other activity of the machine during the measurement, in which the roles used `cpu`.
    pub(crate) fn noise(&self, topologies: &[Topology], cpu: &[(String, CpuCost)]) -> Noise {
        let [before, after] = &self.cpus;
        let technique = topologies[0].technique;
        // Third-party programs have threads that no role accounts for.
        let is_ours = technique.link.switch().is_none_or(|kind| kind == SwitchKind::Dray)
            && !technique.endpoint.is_third_party();
        let used = cpu.iter().map(|(_, cost)| cost.total_s()).sum();
        let used = is_ours.then(|| Duration::from_secs_f64(used));
        let stations = topologies.iter().flat_map(Topology::stations).map(|station| station.cpu);
        let cpus: BTreeSet<usize> = stations.chain(topologies[0].switch_cpu).collect();
        let cpus: Vec<usize> = cpus.into_iter().collect();
        noise::between(&before.all, &after.all, &cpus, after.at - before.at, used)
    }
}

pub(crate) fn ended_early(station: &Station) -> LabError {
    let what = "ended before the measurement".to_owned();
    LabError::Container { container: station.role.clone(), what }
}

pub(crate) fn unexpected(station: &Station, report: &Report) -> LabError {
    let what = format!("sent the report of another role: {report:?}");
    LabError::Container { container: station.role.clone(), what }
}

//! What the trials of a case ran on.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_lab::{Lab, Record};
use serde::{Deserialize, Serialize};

use crate::needs::{Needs, SetUp};
use crate::topology::Topology;
use crate::trial::Agreements;

/// What the trials of a case ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingOfRun {
    /// The CPU of each role.
    pub role_cores: BTreeMap<String, usize>,
    /// Whether roles shared a core.
    pub shared_cores: bool,
    /// Whether each container had a control group of its own; if not, it was pinned by its CPU
    /// affinity alone.
    pub control_groups: bool,
    /// How long it took to make containers and links, in seconds.
    #[serde(default)]
    pub set_up_s: f64,
    /// What made the containers, unless that was dray itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineFacts>,
    /// What was agreed on for the ports of each role that has such a port: by a port and its peer, or by
    /// an AF_XDP port and the kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agreements: Agreements,
    /// The switch in user space, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchFacts>,
    /// Other people's programs, and how they and our switch were started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Record>,
    /// What all that needed, as far as the kernel told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// Whether all roles ran on CPUs that the kernel keeps free of other work.
    #[serde(default)]
    pub isolated_cores: bool,
}

/// A container engine, and what its containers were given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Its version, as it says it.
    pub version: String,
    /// The capabilities of the containers.
    pub capabilities: Vec<String>,
}

/// What a switch in user space had to be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchFacts {
    /// Huge pages reserved for it, in MiB.
    pub hugepages_mib: u32,
    /// Privileges, in words.
    pub privileges: String,
    /// Anything else.
    pub others: Vec<String>,
    /// From the start of its first process until it forwarded, in seconds.
    pub ready_s: f64,
}

impl SettingOfRun {
    /// Notes how long it took until all was ready for one more trial.
    pub(crate) fn add_set_up(&mut self, set_up: SetUp) {
        if let Some(needs) = &mut self.needs {
            needs.set_ups.push(set_up);
        }
    }

    pub(crate) fn of(
        lab: &Lab,
        topologies: &[Topology],
        set_up: Duration,
        agreements: &Agreements,
    ) -> Self {
        let stations = topologies.iter().flat_map(Topology::stations);
        let roles = stations.map(|it| (lab[it.container].name().to_owned(), it.cpu));
        let switch = topologies[0].switch_cpu.map(|cpu| ("switch".to_owned(), cpu));
        Self {
            role_cores: roles.chain(switch).collect(),
            shared_cores: topologies.iter().any(Topology::shares_cores),
            control_groups: lab.has_control_groups(),
            set_up_s: set_up.as_secs_f64(),
            engine: lab.engine().map(|(version, capabilities)| EngineFacts {
                version: version.to_owned(),
                capabilities: capabilities.into_iter().map(str::to_owned).collect(),
            }),
            agreements: agreements.clone(),
            switch: lab.switch().map(|switch| SwitchFacts {
                hugepages_mib: switch.needs().hugepages_mib,
                privileges: switch.needs().privileges.to_owned(),
                others: switch.needs().others.iter().map(|&other| other.to_owned()).collect(),
                ready_s: switch.ready_after().as_secs_f64(),
            }),
            programs: lab.record().filter(|record| !record.commands.is_empty()),
            needs: Needs::of(lab, topologies).ok(),
            isolated_cores: topologies.iter().all(Topology::has_isolated_cores),
        }
    }
}

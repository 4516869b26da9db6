//! Conditions under which the trials of a case ran.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_lab::{Lab, Record};
use serde::{Deserialize, Serialize};

use crate::needs::{Needs, SetUp};
use crate::topology::Topology;
use crate::trial::Agreements;

/// Conditions under which the trials of a case ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingOfRun {
    /// CPU of each role.
    pub role_cores: BTreeMap<String, usize>,
    /// True if roles shared a core.
    pub shared_cores: bool,
    /// True if each container had its own control group; otherwise only its CPU affinity pinned it.
    pub control_groups: bool,
    /// Time that it took to create containers and links, in seconds.
    #[serde(default)]
    pub set_up_s: f64,
    /// Container engine, if dray did not create the containers itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineFacts>,
    /// Outcome of the negotiation for the ports of each role: between a port and its peer, or
    /// between an AF_XDP port and the kernel. Roles without such ports are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agreements: Agreements,
    /// User-space switch, if one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchFacts>,
    /// Third-party programs, and how they and dray's switch were started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Record>,
    /// Resources that the whole setup needed, as far as the kernel reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// True if all roles ran on CPUs that the kernel keeps free of other work.
    #[serde(default)]
    pub isolated_cores: bool,
}

/// A container engine, and what its containers were given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Version, as the engine reports it.
    pub version: String,
    /// Capabilities of the containers.
    pub capabilities: Vec<String>,
}

/// Requirements of a user-space switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchFacts {
    /// Huge pages reserved for the switch, in MiB.
    pub hugepages_mib: u32,
    /// Required privileges, in words.
    pub privileges: String,
    /// Other requirements.
    pub others: Vec<String>,
    /// Time from the start of the switch's first process until it forwarded, in seconds.
    pub ready_s: f64,
}

impl SettingOfRun {
    /// Records how long the setup for one more trial took.
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

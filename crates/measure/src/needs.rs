//! Resources that a technique needs to get ready and while it runs.

use std::collections::BTreeMap;

use dray_lab::{Container, Holdings, Lab, LabError};
use serde::{Deserialize, Serialize};

use crate::Technique;
use crate::topology::Topology;

/// Capability needed to make a link between interfaces.
const MAKES_INTERFACES: &str = "CAP_NET_ADMIN";
const NOTHING: &str = "none";

/// Resources used by the containers, the link and the roles of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// Set-up times, one entry per trial.
    pub set_ups: Vec<SetUp>,
    /// Capabilities of a program at an end of the link.
    pub capabilities: Vec<String>,
    /// Privileges needed on the host to make the link, as text.
    pub on_host: String,
    /// Huge pages, in MiB.
    pub hugepages_mib: u32,
    /// Memory of each role, and of the user-space switch if there is one, in bytes; each is charged
    /// its part of shared memory. Excludes kernel memory, such as socket buffers.
    pub memory_bytes: BTreeMap<String, u64>,
    /// Number of open files and sockets of the same processes.
    pub file_descriptors: BTreeMap<String, usize>,
    /// Reason why memory could not be locked, for each role where that failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unlocked: BTreeMap<String, String>,
}

/// Set-up times, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetUp {
    /// Time to make the containers, including the start of their engine if they have one.
    pub containers_s: f64,
    /// Time to make the link, including its switch if it has one.
    pub link_s: f64,
    /// Time until all roles had their ports open and had negotiated with their peers, if they have
    /// any.
    pub ports_s: f64,
}

impl SetUp {
    /// Total time until the first frame.
    pub fn sum_s(&self) -> f64 {
        self.containers_s + self.link_s + self.ports_s
    }
}

impl Needs {
    /// Reads the needs of the roles after a trial, while they still exist.
    pub(crate) fn of(lab: &Lab, topologies: &[Topology]) -> Result<Self, LabError> {
        let technique = topologies[0].technique;
        let mut needs = Self {
            set_ups: Vec::new(),
            capabilities: capabilities(technique),
            on_host: if technique.link.has_interfaces() { MAKES_INTERFACES } else { NOTHING }
                .to_owned(),
            hugepages_mib: 0,
            memory_bytes: BTreeMap::new(),
            file_descriptors: BTreeMap::new(),
            unlocked: BTreeMap::new(),
        };
        if let Some(switch) = lab.switch() {
            let Holdings { memory_bytes, file_descriptors, .. } = switch.holdings()?;
            needs.add("switch", memory_bytes, file_descriptors);
            let of_switch = switch.needs();
            if of_switch.privileges != NOTHING {
                needs.on_host = of_switch.privileges.to_owned();
            }
            needs.hugepages_mib = of_switch.hugepages_mib;
        }
        // DPDK's programs run beside the containers, and have ended already.
        let stations = topologies.iter().flat_map(Topology::stations);
        for station in stations.filter(|_| !technique.endpoint.is_dpdk()) {
            let container: &Container = &lab[station.container];
            let Holdings { memory_bytes, file_descriptors, unlocked } = container.holdings()?;
            needs.add(container.name(), memory_bytes, file_descriptors);
            needs.unlocked.extend(unlocked.map(|why| (container.name().to_owned(), why)));
        }
        Ok(needs)
    }

    fn add(&mut self, who: &str, memory_bytes: u64, file_descriptors: usize) {
        self.memory_bytes.insert(who.to_owned(), memory_bytes);
        self.file_descriptors.insert(who.to_owned(), file_descriptors);
    }
}

fn capabilities(technique: Technique) -> Vec<String> {
    let names = technique.endpoint.privileges().iter();
    names.map(|capability| capability.name().to_owned()).collect()
}

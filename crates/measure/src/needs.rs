//! What a technique needs until it is ready, and while it is there.

use std::collections::BTreeMap;

use dray_lab::{Container, Holdings, Lab, LabError};
use serde::{Deserialize, Serialize};

use crate::Technique;
use crate::topology::Topology;

/// What making a link between interfaces takes.
const MAKES_INTERFACES: &str = "CAP_NET_ADMIN";
const NOTHING: &str = "none";

/// What containers, link and roles of one trial took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// How long it took until all was ready, once for each trial.
    pub set_ups: Vec<SetUp>,
    /// Capabilities of a program at the end of the link.
    pub capabilities: Vec<String>,
    /// What the host needs to make the link, in words.
    pub on_host: String,
    /// Huge pages, in MiB.
    pub hugepages_mib: u32,
    /// Memory of each role, and of the switch in user space where there is one, in bytes; of what is
    /// shared each has its part. The kernel's own memory, such as the buffers of sockets, is not in it.
    pub memory_bytes: BTreeMap<String, u64>,
    /// Their open files and sockets.
    pub file_descriptors: BTreeMap<String, usize>,
    /// Why a role's memory could not be locked, for those of which that holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unlocked: BTreeMap<String, String>,
}

/// How long it took until all was ready, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetUp {
    /// To make the containers, and to start the engine that makes them, where one does.
    pub containers_s: f64,
    /// To make the link, with its switch where it has one.
    pub link_s: f64,
    /// Until all roles had their ports open and, where they have peers, had agreed with them.
    pub ports_s: f64,
}

impl SetUp {
    /// From nothing to the first frame.
    pub fn sum_s(&self) -> f64 {
        self.containers_s + self.link_s + self.ports_s
    }
}

impl Needs {
    /// Looks at the roles while they are there, after a trial.
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
        // DPDK's programs run beside the containers, and are gone.
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

//! Resources that a technique needs to get ready and while it runs.

use std::collections::BTreeMap;

use dray_lab::{Container, Holdings, Lab, LabError};
use dray_results::Needs;

use crate::technique::Technique;
use crate::topology::Topology;

/// Capability needed to make a link between interfaces.
const MAKES_INTERFACES: &str = "CAP_NET_ADMIN";
const NOTHING: &str = "none";

/// Reads the needs of the roles after a trial, while they still exist.
pub(crate) fn of(lab: &Lab, topologies: &[Topology]) -> Result<Needs, LabError> {
    let technique = topologies[0].technique;
    let mut needs = Needs {
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
        add(&mut needs, "switch", memory_bytes, file_descriptors);
        let of_switch = switch.needs();
        if of_switch.privileges != NOTHING {
            needs.on_host = of_switch.privileges.to_owned();
        }
        needs.hugepages_mib = of_switch.hugepages_mib;
    }
    // Third-party programs run beside the containers, and have ended already.
    let stations = topologies.iter().flat_map(Topology::stations);
    for station in stations.filter(|_| !technique.endpoint.is_third_party()) {
        let container: &Container = &lab[station.container];
        let Holdings { memory_bytes, file_descriptors, unlocked } = container.holdings()?;
        add(&mut needs, container.name(), memory_bytes, file_descriptors);
        needs.unlocked.extend(unlocked.map(|why| (container.name().to_owned(), why)));
    }
    Ok(needs)
}

fn add(needs: &mut Needs, who: &str, memory_bytes: u64, file_descriptors: usize) {
    needs.memory_bytes.insert(who.to_owned(), memory_bytes);
    needs.file_descriptors.insert(who.to_owned(), file_descriptors);
}

fn capabilities(technique: Technique) -> Vec<String> {
    let names = technique.endpoint.facts().privileges.iter();
    names.map(|capability| capability.name().to_owned()).collect()
}

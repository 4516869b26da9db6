//! Conditions under which trials ran.

use std::time::Duration;

use dray_lab::{Lab, Record};
use dray_results::{Agreements, EngineFacts, Programs, SettingOfRun, SwitchFacts};

use crate::needs;
use crate::topology::Topology;

/// Reads the conditions while the containers of the trials still exist.
pub(crate) fn of(
    lab: &Lab,
    topologies: &[Topology],
    set_up: Duration,
    agreements: &Agreements,
) -> SettingOfRun {
    let stations = topologies.iter().flat_map(Topology::stations);
    let roles = stations.map(|it| (lab[it.container].name().to_owned(), it.cpu));
    let switch = topologies[0].switch_cpu.map(|cpu| ("switch".to_owned(), cpu));
    SettingOfRun {
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
            bypassed_ratio: None,
        }),
        programs: lab
            .record()
            .filter(|record| !record.commands.is_empty())
            .map(|Record { versions, commands }| Programs { versions, commands }),
        needs: needs::of(lab, topologies).ok(),
        isolated_cores: topologies.iter().all(Topology::has_isolated_cores),
        lines: None,
    }
}

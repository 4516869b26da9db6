//! Conditions under which the trials of a case ran.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agreement::Agreements;
use crate::lines::Lines;
use crate::needs::Needs;
use crate::noise::Noise;

/// Conditions under which the trials of a case ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingOfRun {
    /// CPU of each role.
    pub role_cores: BTreeMap<String, usize>,
    /// True if roles shared a core.
    pub shared_cores: bool,
    /// True if each container had its own control group; otherwise only its CPU affinity pinned
    /// it.
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
    pub programs: Option<Programs>,
    /// Resources that the whole setup needed, as far as the kernel reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// True if all roles ran on CPUs that the kernel keeps free of other work.
    #[serde(default)]
    pub isolated_cores: bool,
    /// Distance between the CPUs, if there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Lines>,
}

impl SettingOfRun {
    /// Describes what disturbed the measurement, if anything did; `noise` is the machine's other
    /// activity.
    pub(crate) fn disturbed(&self, noise: Option<Noise>) -> Option<String> {
        noise.and_then(|noise| noise.in_words()).or_else(|| self.lines?.disturbed())
    }
}

/// A container engine, and what its containers were given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EngineFacts {
    /// Version, as the engine reports it.
    pub version: String,
    /// Capabilities of the containers.
    pub capabilities: Vec<String>,
}

/// Requirements of a user-space switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SwitchFacts {
    /// Huge pages reserved for the switch, in MiB.
    pub hugepages_mib: u32,
    /// Required privileges, in words.
    pub privileges: String,
    /// Other requirements.
    pub others: Vec<String>,
    /// Time from the start of the switch's first process until it forwarded, in seconds.
    pub ready_s: f64,
    /// Share of the frames from the containers, from the start of the switch to the end of the
    /// last trial, that the kernel forwarded instead of the switch; absent if the ports have
    /// no bypass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypassed_ratio: Option<f64>,
}

/// Third-party programs that were started, so that others can reproduce a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Programs {
    /// Names and versions of the programs, as they print them.
    pub versions: Vec<String>,
    /// Command lines of the programs, for a shell, in the order of their start. Each program ran
    /// in a directory and a network namespace that belong to the run.
    pub commands: Vec<String>,
}

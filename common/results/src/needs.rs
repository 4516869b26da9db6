//! Resources that a technique needs to get ready and while it runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Resources used by the containers, the link and the roles of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

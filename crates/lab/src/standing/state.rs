//! What a keeper says of its lab.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A lab that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabState {
    /// Its name.
    pub name: String,
    /// The file that it was made from.
    pub file: String,
    /// What that file said then.
    pub text: String,
    /// PID of its keeper.
    pub keeper: u32,
    /// Its containers, the host first.
    pub containers: Vec<ContainerState>,
}

/// A container of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    /// Its name.
    pub name: String,
    /// PID of its first process.
    pub pid: i32,
    /// Whether that runs.
    pub running: bool,
    /// The CPUs that it may use, as a list of ranges.
    pub cpus: String,
    /// Its ends of links.
    pub ports: Vec<PortState>,
    /// What was started in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramState>,
}

/// A link's end in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// An interface's name, or the path of a socket.
    pub name: String,
    /// What a role opens it by.
    pub uri: String,
    /// The kind of its link.
    pub kind: String,
    /// Number of the link, from 1 in the order of the file.
    pub link: usize,
    /// Ethernet address of an interface, or what programs at a socket should use.
    pub mac: String,
    /// IPv4 address with the length of its prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether it carries frames; unknown where it is no interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// What commands in the container find in their environment on it.
    pub environment: BTreeMap<String, String>,
}

/// What was started in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramState {
    /// The command line.
    pub run: String,
    /// How it ended; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Where its output is.
    pub log: String,
}

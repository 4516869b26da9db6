//! State of a lab, as reported by its keeper.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A lab that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabState {
    /// Name of the lab.
    pub name: String,
    /// Topology file that the lab was built from.
    pub file: String,
    /// Contents of that file at that time.
    pub text: String,
    /// PID of the keeper.
    pub keeper: u32,
    /// Containers, the host first.
    pub containers: Vec<ContainerState>,
}

/// A container of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    /// Name of the container.
    pub name: String,
    /// PID of its first process.
    pub pid: i32,
    /// True if the first process runs.
    pub running: bool,
    /// CPUs that the container may use, as a list of ranges.
    pub cpus: String,
    /// Directory of the control sockets of `dray` commands in the container. The host's has the
    /// socket of the links' own switch.
    pub control: PathBuf,
    /// Ends of links in the container.
    pub ports: Vec<PortState>,
    /// Program started in the container, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramState>,
}

/// End of a link in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// Name of an interface, or path of a socket.
    pub name: String,
    /// URI with which a role opens the port.
    pub uri: String,
    /// Kind of the link.
    pub kind: String,
    /// Number of the link, from 1 in the order of the file.
    pub link: usize,
    /// Ethernet address of the interface, or the address that programs at a socket should use.
    pub mac: String,
    /// IPv4 address with prefix length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// True if the interface carries frames; `None` if the port is not an interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// Counters of the interface; `None` if the port is not an interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<PortTraffic>,
    /// Environment variables about this port for commands in the container.
    pub environment: BTreeMap<String, String>,
}

/// Frames and bytes that an interface has received and transmitted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the kernel's own")]
pub struct PortTraffic {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_dropped: u64,
}

/// Program started in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramState {
    /// Command line.
    pub run: String,
    /// Exit status or error; `None` while the program runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Path of the file with its output.
    pub log: String,
}

/// How a command ended when its lab went down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Name of the container.
    pub container: String,
    /// Command line.
    pub run: String,
    /// Exit status, signal or error.
    pub ended: String,
    /// True if it had to be killed. It may have left files outside of the lab's directory.
    pub killed: bool,
    /// Lines that it wrote as it ended; its last line if it wrote none then.
    pub summary: Vec<String>,
}

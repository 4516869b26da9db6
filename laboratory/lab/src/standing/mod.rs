//! Standing labs, which stay up until they are taken down. Each has a background process, the
//! keeper, that is the parent of its containers; when the keeper dies, so do they.
//!
//! A keeper has a private directory, whose name identifies its owner, with the lab's name and a
//! Unix socket. A request on the socket is one line of JSON, and so is the reply.

mod build;
mod client;
mod end;
mod keeper;
mod program;
mod state;

use std::fs;
use std::path::{Path, PathBuf};

use dray_socket::Lock;
use serde::{Deserialize, Serialize};

pub use build::path_with;
pub use client::{StandingLab, find, find_all};
pub use keeper::{Order, keep};
pub use state::{CommandEnd, ContainerState, LabState, PortState, PortTraffic, ProgramState};

use crate::peer::SWITCH_CONTROL;
use crate::process::{PARENT, own_entries};
use crate::{LabError, cgroup};

/// File in a lab's directory with its name.
const NAME_FILE: &str = "lab";
/// Socket in a lab's directory on which its keeper listens.
const SOCKET: &str = "control";

/// Request to a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// Asks for the state: the reply is a [`LabState`].
    State,
    /// Takes the lab down: the reply is a list of [`CommandEnd`], and the connection closes once
    /// everything is removed.
    Down,
}

/// Returns names and directories of the labs whose owners are alive.
fn named() -> Vec<(String, PathBuf)> {
    let living =
        own_entries().filter(|entry| !cgroup::is_stale(&entry.file_name().to_string_lossy()));
    let name = |path: PathBuf| Some((fs::read_to_string(path.join(NAME_FILE)).ok()?, path));
    living.filter_map(|entry| name(entry.path())).collect()
}

/// Returns the control sockets of our switches in labs that are not standing: those of
/// measurements.
pub fn measured_switches() -> Vec<PathBuf> {
    let living =
        own_entries().filter(|entry| !cgroup::is_stale(&entry.file_name().to_string_lossy()));
    let unnamed = living.map(|entry| entry.path()).filter(|dir| !dir.join(NAME_FILE).exists());
    unnamed.map(|dir| dir.join(SWITCH_CONTROL)).filter(|socket| socket.exists()).collect()
}

/// Gives the lab in `dir` its name, unless another lab has it.
fn claim(name: &str, dir: &Path) -> Result<(), LabError> {
    let doing = |error| LabError::doing(format!("naming a lab in {PARENT}"))(error);
    // Without the lock, two concurrent callers could both find the name free.
    let _lock = Lock::take(&Path::new(PARENT).join("labs.lock")).map_err(doing)?;
    if named().iter().any(|(other, _)| other == name) {
        return Err(LabError::NameTaken { name: name.to_owned() });
    }
    fs::write(dir.join(NAME_FILE), name).map_err(doing)
}

//! Labs that stand until they are taken down: each in a background process, the keeper, that is the
//! parent of its containers. When the keeper dies, so do they.
//!
//! A keeper has a private directory, whose name tells its owner, with the lab's name and a Unix socket.
//! It is asked there, one line of JSON for a request, and one for the answer.

mod build;
mod client;
mod keeper;
mod state;

use std::fs;
use std::path::{Path, PathBuf};

use dray_daemon::Lock;
use serde::{Deserialize, Serialize};

pub use build::path_with;
pub use client::{StandingLab, find, find_all};
pub use keeper::{Order, keep};
pub use state::{ContainerState, LabState, PortState, ProgramState};

use crate::{LabError, cgroup, peer};

/// In a lab's directory: its name.
const NAME_FILE: &str = "lab";
/// The same: where its keeper listens.
const SOCKET: &str = "control";

/// What a keeper can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// What there is: answered with a [`LabState`].
    State,
    /// Take the lab down: answered by the end of the connection once nothing is left.
    Down,
}

/// Names and directories of the labs whose owners live.
fn named() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(peer::PARENT).into_iter().flatten().flatten();
    let living = entries.filter(|entry| !cgroup::is_stale(&entry.file_name().to_string_lossy()));
    let name = |path: PathBuf| Some((fs::read_to_string(path.join(NAME_FILE)).ok()?, path));
    living.filter_map(|entry| name(entry.path())).collect()
}

/// Gives the lab whose directory is `dir` its name, unless another has it.
fn claim(name: &str, dir: &Path) -> Result<(), LabError> {
    let doing = |error| LabError::doing(format!("naming a lab in {}", peer::PARENT))(error);
    // Two that come at once would both find the name free.
    let _lock = Lock::take(&Path::new(peer::PARENT).join("labs.lock")).map_err(doing)?;
    if named().iter().any(|(other, _)| other == name) {
        return Err(LabError::NameTaken { name: name.to_owned() });
    }
    fs::write(dir.join(NAME_FILE), name).map_err(doing)
}

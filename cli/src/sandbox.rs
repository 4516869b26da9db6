//! `--sandbox`, for long-running commands that talk to untrusted peers.

use std::path::Path;

use dray_daemon::{FOLDER, Place};
use dray_port::PortUri;
use dray_sandbox::{Needs, SandboxError};

/// Confinement of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sandbox {
    /// Confine the daemon once its interfaces are open.
    On,
    /// No confinement: for debuggers, and for interfaces that are added later.
    Off,
}

impl Sandbox {
    /// Confines the process. It can create sockets only in the directories of the `control` socket
    /// and of `ports`, and in dray's default socket directory; connect only to sockets there and in
    /// the directories of the peers of `ports`; and read files only in that of the configuration file
    /// `config`, unless that is `/` or one of devices.
    pub(crate) fn enter<'p>(
        self,
        control: &'p Path,
        ports: impl IntoIterator<Item = &'p PortUri>,
        config: Option<&'p Path>,
    ) -> Result<(), SandboxError> {
        if self == Self::Off {
            tracing::warn!(
                "sandbox: off: the process keeps its capabilities, files and system calls"
            );
            return Ok(());
        }
        // Names of groups in requests are looked up later, and memory is looked at.
        dray_daemon::read_accounts();
        dray_daemon::observe_process();
        let ports: Vec<_> = ports.into_iter().collect();
        let names = || ports.iter().filter_map(|port| port.peer_socket());
        let usual = Some(Path::new(FOLDER));
        let sockets = ports.iter().filter_map(|port| port.socket_directory()).chain(usual);
        // The port itself reports a directory that is missing, or behind a link that a peer may have made.
        let existing = |directory: &&Path| Place::shared(&directory.join("socket")).is_ok();
        let needs = Needs {
            sockets: [folder_of(control)].into_iter().chain(sockets.filter(existing)).collect(),
            peers: names().filter_map(|name| name.path().map(folder_of)).filter(existing).collect(),
            readable: config
                .map(folder_of)
                .filter(|folder| folder.parent().is_some() && !folder.starts_with("/dev")),
            abstract_peers: names().any(|name| name.path().is_none()),
        };
        if let Some(why) = dray_sandbox::enter(&needs)? {
            tracing::warn!("sandbox: other sockets of root stay in reach: {why}");
        }
        Ok(())
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

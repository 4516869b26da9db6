//! `--sandbox` and `--user`, for long-running commands that talk to untrusted peers.

use std::path::Path;

use dray_port::PortUri;
use dray_sandbox::{Needs, SandboxError};
use dray_socket::{FOLDER, Place, User};
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::common::{Failure, usage};

/// State of the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sandbox {
    /// Confine the daemon once its interfaces are open.
    On,
    /// No confinement: for debuggers, and for interfaces that are added later.
    Off,
}

/// Options of confinement.
#[derive(Clone, clap::Args)]
pub(crate) struct Confinement {
    /// Give up capabilities, files and system calls once interfaces are open (`off`: to debug).
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true)]
    sandbox: Sandbox,
    /// User to run as, if root starts this: names or numbers [default: dray, if the system has
    /// this user; in a sandbox only]. `root` stays root: for peers whose sockets only root may
    /// write to.
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,
}

/// A daemon that is to be confined.
pub(crate) struct Confined {
    sandbox: Sandbox,
    /// The user that it acts as.
    user: Option<User>,
    /// True if root has not said to stay root.
    stays_root: bool,
}

impl Confinement {
    /// Makes a process of root act as its user, so that what it creates belongs to that user. It
    /// keeps its capabilities until it is confined.
    pub(crate) fn begin(self) -> Result<Confined, Failure> {
        let Self { sandbox, user: given } = self;
        let wrong =
            |what: String| usage!("--user {}: {what}", given.as_deref().unwrap_or_default());
        let has_default = sandbox == Sandbox::On && geteuid().is_root();
        let found = match &given {
            None if !has_default => None,
            // A file with errors has no such user.
            None => User::find(User::USUAL).unwrap_or_default(),
            Some(text) => {
                let found = User::find(text).map_err(wrong)?;
                Some(found.ok_or_else(|| {
                    wrong("not in /etc/passwd; give a name in this file, or UID:GROUP".to_owned())
                })?)
            }
        };
        let own = geteuid().as_raw();
        if own != 0 && found.as_ref().is_some_and(|user| user.uid != own) {
            return Err(wrong(format!(
                "only root can run as another user, and this is user {own}; leave it out"
            )));
        }
        let stays_root = has_default && found.is_none();
        let user = found.filter(|user| own == 0 && user.uid != 0);
        if let Some(User { name, uid, gid, groups }) = &user {
            let failed = |error| {
                anyhow::anyhow!(
                    "user {name}: {error}; changing to another user needs the capabilities SETUID and \
                     SETGID; --user root stays root"
                )
            };
            dray_sandbox::join_groups(*gid, groups).map_err(failed)?;
            // A directory that the user cannot write in is reported later.
            let _ = dray_socket::share_folder(*gid);
            dray_sandbox::act_as(*uid).map_err(failed)?;
        }
        Ok(Confined { sandbox, user, stays_root })
    }
}

impl Confined {
    /// Does `work` as root, if root has started the process.
    pub(crate) fn as_root<T>(&self, work: impl FnOnce() -> T) -> Result<T, SandboxError> {
        let act = |uid| dray_sandbox::act_as(uid).map_err(SandboxError::User);
        let Some(user) = &self.user else { return Ok(work()) };
        act(0)?;
        let done = work();
        act(user.uid).map(|()| done)
    }

    /// Confines the process. It can create sockets only in the directories of the `control` socket
    /// and of `ports`, and in dray's default socket directory; connect only to sockets there and in
    /// the directories of the peers of `ports`; and read files only in that of the configuration
    /// file `config`, unless that is `/` or one of devices.
    pub(crate) fn enter<'p>(
        &self,
        control: &'p Path,
        ports: impl IntoIterator<Item = &'p PortUri>,
        config: Option<&'p Path>,
    ) -> Result<(), SandboxError> {
        if self.sandbox == Sandbox::Off {
            tracing::warn!(
                "sandbox: off: the process keeps its capabilities, files and system calls"
            );
            return dray_sandbox::become_user().map_err(SandboxError::User);
        }
        // Names of groups in requests are looked up later, and memory is looked at.
        dray_socket::read_accounts();
        dray_daemon::observe_process();
        let ports: Vec<_> = ports.into_iter().collect();
        let names = || ports.iter().filter_map(|port| port.peer_socket());
        let usual = Some(Path::new(FOLDER));
        let sockets = ports.iter().filter_map(|port| port.socket_directory()).chain(usual);
        // The port itself reports a directory that is missing, or behind a link that a peer may
        // have made.
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
            tracing::warn!(
                "sandbox: other sockets stay in reach, as the root directory cannot change: {why}"
            );
        }
        self.report(&needs.sockets);
        Ok(())
    }

    /// Logs that the process stays root, and which of `directories` its user cannot write in.
    fn report(&self, directories: &[&Path]) {
        if self.stays_root {
            let usual = User::USUAL;
            tracing::info!(
                "user: stays root, as there is no user {usual}; --user USER gives another one"
            );
        }
        let Some(User { name, .. }) = &self.user else { return };
        let mut closed: Vec<_> =
            directories.iter().filter(|path| access(**path, Access::WRITE_OK).is_err()).collect();
        closed.sort();
        closed.dedup();
        for directory in closed {
            let directory = directory.display();
            tracing::warn!(
                "user: {name} cannot write in {directory}: sockets cannot be added there, and stay at \
                 the end; --user root can"
            );
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

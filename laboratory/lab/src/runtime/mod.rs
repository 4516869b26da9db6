//! Runtimes: programs that create the container around a `dray`.
//!
//! The lab itself is the *embedded* runtime. The others are engines that users have: Docker,
//! Podman, LXC, and the low-level programs `crun` and `runc`. An engine runs inside the "host"
//! container, in its namespaces and with memory in place of its state folders. It neither sees nor
//! touches existing state on the machine, and everything that it starts or mounts disappears with
//! the "host". Only control groups outlive the "host"; the lab tells the engine to create them
//! below its own.
//!
//! One command runs one container and ends with it. The `dray` inside connects to a socket of the
//! lab, which tells the lab its PID; after that, all containers are handled alike.

mod devices;
mod docker;
mod engine;
mod helper;
mod image;
mod kind;
mod lxc;
pub(crate) mod network;
mod oci;
mod podman;
mod privileges;
mod state;

pub(crate) use engine::Engine;
pub(crate) use helper::Helper;
pub use kind::Runtime;
pub use privileges::{Capability, Privileges};

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, geteuid, setrlimit};

use crate::namespace::Init;
use crate::process::{PeerDir, Process};
use crate::{Cancel, LabError, placement};
use engine::Spec;
use image::Image;

/// Settings of an engine.
pub(crate) struct EngineSettings<'a> {
    pub(crate) runtime: Runtime,
    /// The `dray` to run inside containers.
    pub(crate) program: &'a Path,
    /// Privileges of containers.
    pub(crate) privileges: Privileges,
    /// Parent of the containers' control groups.
    pub(crate) group: PathBuf,
    /// Docker adds its rules of netfilter to its bridge.
    pub(crate) has_rules: bool,
}

impl Engine {
    /// Finds the engine and starts it inside `host`.
    pub(crate) fn start(
        settings: EngineSettings<'_>,
        host: &Init,
        dir: PeerDir,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let EngineSettings { runtime, program, privileges, group, has_rules } = settings;
        if !geteuid().is_root() {
            return Err(LabError::NotPermitted);
        }
        let version = runtime.version()?;
        // Roles lock their memory, and containers inherit the engine's limit. If it cannot be
        // lifted, results say so.
        let unlimited = Rlimit { current: None, maximum: None };
        let _ = setrlimit(Resource::Memlock, unlimited);
        let image = Image::new(program, &dir)?;
        let doing = LabError::doing(format!("state folders of {runtime}"));
        state::hide(host, dir.path()).map_err(doing)?;
        let devices = match privileges.contains(&Capability::Mknod) {
            true => devices::of_interfaces().map_err(LabError::doing("devices of interfaces"))?,
            false => Vec::new(),
        };
        let mut engine = Self {
            runtime,
            version,
            dir,
            image,
            group,
            privileges,
            devices,
            network: None,
            has_rules,
            daemons: Vec::new(),
        };
        if runtime == Runtime::Docker {
            engine.daemons = docker::start(&engine, host, cancel)?;
        }
        Ok(engine)
    }

    /// Starts a container in which `dray` runs with `arguments`. The container and the returned
    /// process end together.
    pub(crate) fn run(
        &self,
        host: &Init,
        name: &str,
        cpus: &[usize],
        address: Option<Ipv4Addr>,
        arguments: &[&str],
    ) -> Result<Process, LabError> {
        let spec = Spec {
            name,
            cpus: placement::ranges(cpus),
            address,
            command: [&[image::PROGRAM], arguments].concat(),
        };
        let mut command = match self.runtime {
            Runtime::Embedded => unreachable!("the lab's own containers take no engine"),
            Runtime::Docker => docker::run(self, &spec),
            Runtime::Podman => podman::run(self, &spec),
            Runtime::Lxc => lxc::run(self, &spec)?,
            Runtime::Crun | Runtime::Runc => oci::run(self, &spec)?,
        };
        let name = format!("container {name} ({})", self.runtime);
        Process::start_within(host, &self.dir, &name, &mut command)
    }
}

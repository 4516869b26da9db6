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
mod helper;
mod image;
mod lxc;
pub(crate) mod network;
mod oci;
mod podman;
mod privileges;
mod state;

pub(crate) use helper::Helper;
pub use privileges::{Capability, Privileges};

use std::env;
use std::fmt;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use serde::{Deserialize, Serialize};

use crate::doctor::programs;
use crate::namespace::Init;
use crate::process::{self, PeerDir, Process};
use crate::{Cancel, LabError, container, placement};
use devices::Devices;
use image::Image;

/// Time limit for a runtime to print its version. Some are slow to start, especially on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runtime that creates the containers in which roles run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The lab: a process in its own namespaces that sees the machine's files.
    #[default]
    Embedded,
    /// A private Docker engine.
    Docker,
    /// Podman.
    Podman,
    /// LXC's `lxc-start`.
    Lxc,
    /// `crun` with a bundle.
    Crun,
    /// `runc` with a bundle.
    Runc,
}

/// Programs that must be installed for a runtime.
struct Requirement {
    /// Program that prints the version.
    program: &'static str,
    /// Other required programs, of the same package or its dependencies.
    others: &'static [&'static str],
    /// Oldest supported version.
    oldest: (u32, u32),
    /// Debian package.
    package: &'static str,
}

impl Runtime {
    /// All runtimes.
    pub const ALL: [Self; 6] =
        [Self::Embedded, Self::Docker, Self::Podman, Self::Lxc, Self::Crun, Self::Runc];

    /// Name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Lxc => "lxc",
            Self::Crun => "crun",
            Self::Runc => "runc",
        }
    }

    fn requirement(self) -> Option<Requirement> {
        let of = |program, others, oldest, package| {
            Some(Requirement { program, others, oldest, package })
        };
        match self {
            Self::Embedded => None,
            // Since this version, no image has to be pulled, and the control group's place can be
            // set in both cgroup versions.
            Self::Docker => of("dockerd", &["docker", "containerd"], (20, 10), "docker.io"),
            Self::Podman => of("podman", &["conmon"], (3, 4), "podman"),
            // Since this version, the control group's place can be set.
            Self::Lxc => of("lxc-start", &[], (4, 0), "lxc"),
            Self::Crun => of("crun", &[], (1, 0), "crun"),
            Self::Runc => of("runc", &[], (1, 0), "runc"),
        }
    }

    /// Returns the version. The error for a missing or outdated runtime says what to install.
    pub fn version(self) -> Result<String, LabError> {
        self.find().map_err(|what| {
            let package = self.package().unwrap_or_default();
            self.wrong(format!("{what}; apt install {package}"))
        })
    }

    /// Returns the Debian package.
    pub(crate) fn package(self) -> Option<&'static str> {
        self.requirement().map(|requirement| requirement.package)
    }

    /// Returns the version, or what is wrong with the installation.
    pub(crate) fn find(self) -> Result<String, String> {
        let Some(requirement) = self.requirement() else {
            return Ok(env!("CARGO_PKG_VERSION").to_owned());
        };
        let Requirement { program, others, oldest, .. } = requirement;
        let path = programs::search_path(env::var_os("PATH"));
        let find = |program: &str| {
            programs::find(program, &path).ok_or_else(|| format!("{program} is not installed"))
        };
        let file = find(program)?;
        others.iter().try_for_each(|other| find(other).map(drop))?;
        let mut question = Command::new(file);
        let answer = programs::first_answer(question.arg("--version"), PATIENCE);
        let answer = answer.unwrap_or_default();
        let (version, number) = parse_version(&answer)
            .ok_or_else(|| format!("unexpected output of {program} --version: {answer:?}"))?;
        if number < oldest {
            let (major, minor) = oldest;
            return Err(format!(
                "{program} {version} is too old; {major}.{minor} or later is required"
            ));
        }
        Ok(version.to_owned())
    }

    fn wrong(self, what: String) -> LabError {
        LabError::Runtime { runtime: self.name(), what }
    }
}

/// Finds the version in a line such as `Docker version 20.10.24+dfsg1, build 297e128`, and its
/// first two numbers.
fn parse_version(line: &str) -> Option<(&str, (u32, u32))> {
    let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let version = line.split_whitespace().find(is_version)?.trim_end_matches(',');
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((version, (numbers.next()?.ok()?, numbers.next()?.ok()?)))
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|runtime| runtime.name() == text);
        found.ok_or_else(|| dray_text::advice(text, Self::ALL.map(Self::name)))
    }
}

/// Engine that is ready to run containers for a lab.
pub(crate) struct Engine {
    runtime: Runtime,
    version: String,
    dir: PeerDir,
    /// Files of the machine that containers see.
    image: Image,
    /// Parent of the containers' control groups, relative to the root of every hierarchy.
    group: PathBuf,
    privileges: Privileges,
    /// Devices that its containers may use in addition to the default ones.
    devices: Vec<Devices>,
    /// Option or configuration with which its containers join the network that the engine creates;
    /// `None` if there is no such network.
    network: Option<String>,
    /// Daemon that has to run, if the engine has one.
    daemon: Option<Daemon>,
}

/// Daemon that creates the containers and is needed while they run.
struct Daemon {
    process: Process,
    /// Processes that the daemon started.
    helpers: Vec<Helper>,
}

/// Container that an engine is to create.
struct Spec<'a> {
    name: &'a str,
    /// CPUs that the container is confined to, as ranges.
    cpus: String,
    /// Address in the engine's network, if the container joins it.
    address: Option<Ipv4Addr>,
    /// The program inside, with its arguments.
    command: Vec<String>,
}

impl Engine {
    /// Finds the engine and starts it inside `host`. `program` is the `dray` to run inside
    /// containers, `group` the parent of their control groups.
    pub(crate) fn start(
        runtime: Runtime,
        program: &Path,
        privileges: Privileges,
        host: &Init,
        dir: PeerDir,
        group: PathBuf,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
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
            daemon: None,
        };
        if runtime == Runtime::Docker {
            engine.daemon = Some(docker::start(&engine, host, cancel)?);
        }
        Ok(engine)
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the capabilities of its containers, by the kernel's names. Docker before 23 and the
    /// seccomp filter of Podman before 5.0 do not know CAP_BPF and need CAP_SYS_ADMIN instead.
    pub(crate) fn capabilities(&self) -> Vec<&'static str> {
        let major = parse_version(&self.version).map_or(0, |(_, (major, _))| major);
        let knows_bpf = match self.runtime {
            Runtime::Docker => major >= 23,
            Runtime::Podman => major >= 5,
            _ => true,
        };
        let name = |capability: &Capability| match capability {
            Capability::Bpf if !knows_bpf => "CAP_SYS_ADMIN",
            capability => capability.name(),
        };
        self.privileges.iter().map(name).collect()
    }

    /// Returns descriptors that become readable when there may be an [`end`](Self::end).
    pub(crate) fn signs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.daemon.iter().flat_map(|Daemon { process, helpers }| {
            helpers.iter().map(Helper::sign).chain([process.sign()])
        })
    }

    /// Returns a message if a process that all containers need has ended.
    pub(crate) fn end(&mut self) -> Option<String> {
        let Daemon { process, helpers } = self.daemon.as_mut()?;
        let end = process.end().map(|end| format!("its runtime process {end}"));
        end.or_else(|| helpers.iter().find_map(Helper::end))
    }

    /// Starts a container whose `dray` connects to `socket`. The container and the returned process
    /// end together.
    pub(crate) fn run(
        &self,
        host: &Init,
        name: &str,
        cpus: &[usize],
        address: Option<Ipv4Addr>,
        socket: &Path,
    ) -> Result<Process, LabError> {
        let socket = socket.to_string_lossy();
        let command = [image::PROGRAM, container::INSIDE_COMMAND, name, "--socket", &*socket];
        let spec = Spec {
            name,
            cpus: placement::ranges(cpus),
            address,
            command: command.map(str::to_owned).to_vec(),
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

    /// Returns the folder of sockets, at the same path inside and outside of containers.
    fn sockets(&self) -> PathBuf {
        self.dir.sockets()
    }

    /// Returns a command whose HOME is the engine's state folder.
    fn command(&self, program: &str) -> Command {
        let mut command = process::command(program);
        command.env("HOME", state::FOLDER);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_engine_versions() {
        let version = |line| parse_version(line).map(|(_, number)| number);
        for (line, expected) in [
            ("Docker version 20.10.24+dfsg1, build 297e128", (20, 10)),
            ("podman version 4.3.1", (4, 3)),
            ("5.0.2", (5, 0)),
            ("crun version 1.8.1", (1, 8)),
            ("runc version 1.1.5+ds1", (1, 1)),
            ("runc version 1.2-rc1", (1, 2)),
        ] {
            assert_eq!(version(line), Some(expected), "{line}");
        }
        for line in ["", "Docker", "version x.y", "7"] {
            assert_eq!(version(line), None, "{line}");
        }
        let (text, _) = parse_version("Docker version 20.10.24+dfsg1, build 297e128").unwrap();
        assert_eq!(text, "20.10.24+dfsg1");
    }

    #[test]
    fn unknown_runtime_error_lists_runtimes() {
        for runtime in Runtime::ALL {
            assert_eq!(runtime.name().parse(), Ok(runtime));
        }
        let message = "rkt".parse::<Runtime>().unwrap_err();
        assert!(message.contains("embedded, docker, podman, lxc, crun, runc"), "{message}");
    }
}

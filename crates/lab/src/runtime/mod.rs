//! Runtimes: who makes a container around the `dray` inside.
//!
//! The lab itself is one, the *embedded* one. The others are engines that users have: Docker, Podman,
//! LXC, and the programs under them, `crun` and `runc`. An engine runs inside the "host" container,
//! in its namespaces and with memory in place of its state folders, so it neither sees nor touches what
//! is on the machine, and whatever it starts or mounts goes with the "host". Control groups alone
//! outlive that; the lab tells the engine to make them below its own.
//!
//! One command runs one container and ends with it. The `dray` inside connects to a socket of the lab,
//! which tells the lab its PID; from there on all containers are alike.

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
use crate::peer::PeerDir;
use crate::peer::process::{self, Process};
use crate::{Cancel, LabError, container, placement};
use devices::Devices;
use image::Image;

/// How long a runtime may take to say its version. Some are slow to start, and more so on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who makes the containers in which roles run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The lab: a process in namespaces of its own that sees the machine's files.
    #[default]
    Embedded,
    /// Docker's engine, a private one.
    Docker,
    /// Podman.
    Podman,
    /// LXC's `lxc-start`.
    Lxc,
    /// `crun` by bundle.
    Crun,
    /// `runc` by bundle.
    Runc,
}

/// What a runtime needs to be installed.
struct Requirement {
    /// It says its version.
    program: &'static str,
    /// Another program of its package or of one that it needs.
    others: &'static [&'static str],
    /// The oldest version that will do.
    oldest: (u32, u32),
    /// Debian's package.
    package: &'static str,
}

impl Runtime {
    /// Every runtime.
    pub const ALL: [Self; 6] =
        [Self::Embedded, Self::Docker, Self::Podman, Self::Lxc, Self::Crun, Self::Runc];

    /// The word for it on the command line and in results.
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
            // From there on it need not look for an image elsewhere, and can be told where control
            // groups belong in either version of them.
            Self::Docker => of("dockerd", &["docker", "containerd"], (20, 10), "docker.io"),
            Self::Podman => of("podman", &["conmon"], (3, 4), "podman"),
            // From there on it can be told where its control groups belong.
            Self::Lxc => of("lxc-start", &[], (4, 0), "lxc"),
            Self::Crun => of("crun", &[], (1, 0), "crun"),
            Self::Runc => of("runc", &[], (1, 0), "runc"),
        }
    }

    /// Its version; an error where it is missing or too old, which says what to install.
    pub fn version(self) -> Result<String, LabError> {
        self.find().map_err(|what| {
            let package = self.package().unwrap_or_default();
            self.wrong(format!("{what}; apt install {package}"))
        })
    }

    /// Debian's package of it.
    pub(crate) fn package(self) -> Option<&'static str> {
        self.requirement().map(|requirement| requirement.package)
    }

    /// Its version, or what is wrong with it.
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
            .ok_or_else(|| format!("{program} does not say its version but {answer:?}"))?;
        if number < oldest {
            let (major, minor) = oldest;
            return Err(format!(
                "{program} {version} is too old: {major}.{minor} or later will do"
            ));
        }
        Ok(version.to_owned())
    }

    fn wrong(self, what: String) -> LabError {
        LabError::Runtime { runtime: self, what }
    }
}

/// The version in a line such as `Docker version 20.10.24+dfsg1, build 297e128`, and its first two
/// numbers.
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
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|runtime| runtime.name() == text);
        found.ok_or_else(|| format!("give one of {}", names()))
    }
}

/// An engine that is ready to run containers for a lab.
pub(crate) struct Engine {
    runtime: Runtime,
    version: String,
    dir: PeerDir,
    /// What containers see of the machine.
    image: Image,
    /// Where their control groups belong, from the root of every hierarchy.
    group: PathBuf,
    privileges: Privileges,
    /// Those that its containers may use beside the usual ones.
    devices: Vec<Devices>,
    /// How its containers join the network that it makes, in its own words, where they do.
    network: Option<String>,
    /// What has to run besides, if anything.
    daemon: Option<Daemon>,
}

/// The daemon that containers are made by, and live under.
struct Daemon {
    process: Process,
    /// What it has started for itself.
    helpers: Vec<Helper>,
}

/// A container that an engine shall make.
struct Spec<'a> {
    name: &'a str,
    /// The CPUs that it is confined to, as ranges.
    cpus: String,
    /// Its address in the engine's own network, where it joins that.
    address: Option<Ipv4Addr>,
    /// The program inside, with its arguments.
    command: Vec<String>,
}

impl Engine {
    /// Finds the engine and makes it ready within `host`. `program` is the `dray` that shall run
    /// inside, `group` where control groups belong.
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
        // Roles lock their memory. Engines pass on the limit that they have; where it cannot be lifted,
        // results say so.
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

    /// The capabilities of its containers, by the kernel's names. Docker before 23 does not know
    /// CAP_BPF, and Podman's filter of system calls before 5.0 does not either; CAP_SYS_ADMIN has to
    /// take its place there.
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

    /// Becomes readable when there may be an [`end`](Self::end).
    pub(crate) fn signs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.daemon.iter().flat_map(|Daemon { process, helpers }| {
            helpers.iter().map(Helper::sign).chain([process.sign()])
        })
    }

    /// That what all of its containers need has ended, where it has.
    pub(crate) fn end(&mut self) -> Option<String> {
        let Daemon { process, helpers } = self.daemon.as_mut()?;
        let end = process.end().map(|end| format!("what runs it {end}"));
        end.or_else(|| helpers.iter().find_map(Helper::end))
    }

    /// Starts a container whose `dray` connects to `socket`. It ends with the process that this
    /// returns, and that with it.
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

    /// The folder of sockets, the same path inside and outside.
    fn sockets(&self) -> PathBuf {
        self.dir.sockets()
    }

    /// A command that finds its home among the engine's state.
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
    fn versions_as_engines_say_them() {
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
    fn a_word_that_is_no_runtime_is_told_those_that_are() {
        for runtime in Runtime::ALL {
            assert_eq!(runtime.name().parse(), Ok(runtime));
        }
        let message = "rkt".parse::<Runtime>().unwrap_err();
        assert!(message.contains("embedded, docker, podman, lxc, crun, runc"), "{message}");
    }
}

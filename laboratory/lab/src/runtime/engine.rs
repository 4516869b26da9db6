//! An engine and the containers that it is to create.

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::Command;

use super::devices::Devices;
use super::image::Image;
use super::kind::{Runtime, parse_version};
use super::privileges::{Capability, Privileges};
use super::state;
use crate::process::{self, PeerDir, Process};

/// Engine that is ready to run containers for a lab.
pub(crate) struct Engine {
    pub(super) runtime: Runtime,
    pub(super) version: String,
    pub(super) dir: PeerDir,
    /// Files of the machine that containers see.
    pub(super) image: Image,
    /// Parent of the containers' control groups, relative to the root of every hierarchy.
    pub(super) group: PathBuf,
    pub(super) privileges: Privileges,
    /// Devices that its containers may use in addition to the default ones.
    pub(super) devices: Vec<Devices>,
    /// Option or configuration with which its containers join the network that the engine creates;
    /// `None` if there is no such network.
    pub(super) network: Option<String>,
    /// True if the engine writes rules of netfilter for its networks.
    pub(super) has_rules: bool,
    /// Daemons that create the containers and are needed while they run. One that needs another
    /// comes first, so that it is the first to end.
    pub(super) daemons: Vec<Process>,
}

/// Container that an engine is to create.
pub(super) struct Spec<'a> {
    pub(super) name: &'a str,
    /// CPUs that the container is confined to, as ranges.
    pub(super) cpus: String,
    /// Address in the engine's network, if the container joins it.
    pub(super) address: Option<Ipv4Addr>,
    /// The program inside, with its arguments.
    pub(super) command: Vec<&'a str>,
}

impl Engine {
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
        self.daemons.iter().map(Process::sign)
    }

    /// Returns a message if a process that all containers need has ended.
    pub(crate) fn end(&mut self) -> Option<String> {
        // The one that comes last may be the reason for the others' end.
        self.daemons.iter_mut().rev().find_map(|process| {
            process.end().map(|end| format!("{}, which runs it, {end}", process.name()))
        })
    }

    /// Returns the folder of sockets, at the same path inside and outside of containers.
    pub(super) fn sockets(&self) -> PathBuf {
        self.dir.sockets()
    }

    /// Returns a command whose HOME is the engine's state folder.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = process::command(program);
        command.env("HOME", state::FOLDER);
        command
    }
}

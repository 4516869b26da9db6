//! Small virtual machines, for what the host's kernel lacks and for guests as peers.
//!
//! A machine boots the kernel that `scripts/setup-vm.sh` unpacked and sees the host's file system
//! over 9p: it reads all of it, and what it writes stays in its own memory. It runs one script as
//! root and ends with it. QEMU interprets the processor, since many a host that offers
//! `/dev/kvm` cannot run a guest on it: nothing in here is fast, and no figure should come of it.

mod channels;
mod qemu;
mod running;
mod sys;
mod vhost_user;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Cancel, LabError};
use channels::Channels;
use qemu::QEMU;

pub use running::RunningVm;
pub use vhost_user::VhostUser;

/// Where `scripts/setup-vm.sh` puts the kernel, its modules and the initial file system.
const FILES: &str = "/var/cache/dray/vm";

/// With less memory, in MiB, the kernel does not start or says nothing of why it ended.
const MEMORY_MIN: u32 = 128;

/// A virtual machine to be.
#[derive(Debug)]
pub struct Vm {
    name: String,
    memory_mib: u32,
    cpus: u32,
    arguments: Vec<String>,
    kernel_arguments: Vec<String>,
    vhost_user: Vec<VhostUser>,
    script: String,
    cancel: Cancel,
}

/// What a virtual machine left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmOutput {
    /// The exit status of the script, as the shell tells it: 128 and more after a signal.
    pub status: u8,
    /// What the script wrote to its standard output and error.
    pub output: String,
    /// What the kernel wrote to its console.
    pub console: String,
}

impl Vm {
    /// A machine with one CPU, 512 MiB and no network, whose script does nothing. `name` is for
    /// messages.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            memory_mib: 512,
            cpus: 1,
            arguments: Vec::new(),
            kernel_arguments: Vec::new(),
            vhost_user: Vec::new(),
            script: String::new(),
            cancel: Cancel::default(),
        }
    }

    /// Sets the guest's memory, at least 128 MiB; what the script writes to files is in it as well.
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets the number of CPUs.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Adds a network card at the other end of a vhost-user socket. The first is `eth0`.
    pub fn vhost_user(mut self, card: VhostUser) -> Self {
        self.vhost_user.push(card);
        self
    }

    /// Adds arguments of QEMU's, such as `["-device", "igb,netdev=n"]`. The machine is a q35.
    pub fn arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    /// Adds an argument of the kernel's, such as `intel_iommu=on`.
    pub fn kernel_argument(mut self, argument: &str) -> Self {
        self.kernel_arguments.push(argument.to_owned());
        self
    }

    /// Sets what runs in the guest: a script for `sh`, or for what its first line names by `#!`.
    /// It finds the host's commands in PATH, all of BusyBox as `/busybox`, the kernel's modules
    /// where `modprobe` looks for them, and the driver of virtio network cards loaded.
    pub fn script(mut self, script: &str) -> Self {
        script.clone_into(&mut self.script);
        self
    }

    /// Sets what ends waits early.
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// Runs the machine to its end, at most for `limit`.
    pub fn boot(self, limit: Duration) -> Result<VmOutput, LabError> {
        self.start()?.wait(limit)
    }

    /// An error that says what to install where this host cannot run virtual machines.
    pub fn check() -> Result<(), LabError> {
        let lacks = |what: String| LabError::NoVm { what };
        if !Path::new(FILES).join("initrd").exists() {
            return Err(lacks(format!("there is no kernel for them in {FILES}")));
        }
        let version = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
        version.map_err(|error| lacks(format!("{QEMU}: {error}"))).map(drop)
    }

    /// Starts the machine. It dies with the returned value, and with the calling thread.
    pub fn start(self) -> Result<RunningVm, LabError> {
        Self::check()?;
        if self.memory_mib < MEMORY_MIN {
            let what = format!("{} MiB of memory: give it {MEMORY_MIN} or more", self.memory_mib);
            return Err(LabError::Vm { vm: self.name, what });
        }
        let doing = |what| LabError::doing(format!("virtual machine {}: {what}", self.name));
        let channels = Channels::new(&self.script).map_err(doing("memfd_create"))?;
        let errors = channels.errors.as_stdio().map_err(doing("standard error"))?;
        let mut command = qemu::command(&self, &channels);
        let process = sys::spawn(command.stderr(errors)).map_err(doing(QEMU))?;
        let sockets = self.vhost_user.into_iter().filter_map(VhostUser::into_own_socket).collect();
        Ok(RunningVm { name: self.name, cancel: self.cancel, process, channels, sockets })
    }
}

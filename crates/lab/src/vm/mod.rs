//! Small virtual machines, for what the host's kernel lacks and for guests as peers.
//!
//! A machine boots the kernel that `scripts/setup-vm.sh` unpacked and sees the host's file system
//! over 9p: it reads all of it, and what it writes stays in its own memory. It runs one script as
//! root and ends with it. QEMU interprets the processor, since many a host that offers
//! `/dev/kvm` cannot run a guest on it: nothing in here is fast, and no figure should come of it.

mod memory_file;
mod running;
mod sys;
mod vhost_user;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Cancel, LabError};
use memory_file::MemoryFile;

pub use running::RunningVm;
pub use vhost_user::VhostUser;

/// Where `scripts/setup-vm.sh` puts the kernel, its modules and the initial file system.
const FILES: &str = "/var/cache/dray/vm";

const QEMU: &str = "qemu-system-x86_64";

/// No wait for a watchdog, no guessing at addresses, and a kernel that panics ends the machine.
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable nowatchdog";

/// A virtual machine to be.
#[derive(Debug)]
pub struct Vm {
    name: String,
    memory_mib: u32,
    cpus: u32,
    arguments: Vec<String>,
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
            vhost_user: Vec::new(),
            script: String::new(),
            cancel: Cancel::default(),
        }
    }

    /// Sets the guest's memory; the kernel and the file system's upper layer need 256 MiB.
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
        let file = |purpose: &str| {
            let doing = LabError::doing(format!("virtual machine {}: {purpose}", self.name));
            MemoryFile::new(purpose).map_err(doing)
        };
        let (script, output) = (file("script")?, file("output")?);
        let (status, console, errors) = (file("status")?, file("console")?, file("errors")?);
        let doing = |what| LabError::doing(format!("virtual machine {}: {what}", self.name));
        script.write(&self.script).map_err(doing("script"))?;
        let mut command = Command::new(QEMU);
        command
            .args(self.qemu_arguments())
            .args(["-fw_cfg", &format!("name=opt/dray/script,file={}", script.path())])
            .args(write_to("console", &console))
            .args(["-serial", "chardev:console"])
            .args(write_to("output", &output))
            .args(["-device", "virtserialport,chardev=output,name=output"])
            .args(write_to("status", &status))
            .args(["-device", "virtserialport,chardev=status,name=status"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.as_stdio().map_err(doing("standard error"))?);
        let process = sys::spawn(&mut command).map_err(doing(QEMU))?;
        let sockets = self.vhost_user.into_iter().filter_map(VhostUser::into_own_socket).collect();
        Ok(RunningVm {
            name: self.name,
            cancel: self.cancel,
            process,
            output,
            status,
            console,
            errors,
            _script: script,
            sockets,
        })
    }

    fn qemu_arguments(&self) -> Vec<String> {
        let memory = self.memory_mib;
        let mut arguments = Vec::new();
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        add("-name", escape(&self.name));
        // A vhost-user peer maps the guest's memory, so it is a file.
        add("-object", format!("memory-backend-memfd,id=memory,size={memory}M,share=on"));
        add("-machine", "q35,accel=tcg,memory-backend=memory".to_owned());
        add("-m", format!("{memory}M"));
        add("-cpu", "max".to_owned());
        add("-smp", self.cpus.to_string());
        add("-display", "none".to_owned());
        add("-kernel", format!("{FILES}/vmlinuz"));
        add("-initrd", format!("{FILES}/initrd"));
        add("-append", KERNEL_ARGUMENTS.to_owned());
        // An IOMMU has to come before the devices that it is for.
        self.arguments.iter().for_each(|argument| arguments.push(argument.clone()));
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        // Several of the host's file systems appear as one.
        let share = "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap";
        add("-fsdev", share.to_owned());
        add("-device", "virtio-9p-pci,fsdev=host,mount_tag=host".to_owned());
        add("-device", "virtio-serial-pci".to_owned());
        arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
        for (index, card) in self.vhost_user.iter().enumerate() {
            arguments.extend(card.qemu_arguments(index));
        }
        arguments
    }
}

fn write_to(id: &str, file: &MemoryFile) -> [String; 2] {
    ["-chardev".to_owned(), format!("file,id={id},path={}", file.path())]
}

/// Within a value, QEMU wants commas doubled.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

/// Sockets that a machine made by itself and has to remove.
type Sockets = Vec<PathBuf>;

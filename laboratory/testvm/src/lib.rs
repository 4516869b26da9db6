//! Small virtual machines, for features that the host's kernel lacks and for guests as peers.
//!
//! A machine boots the kernel that `scripts/setup-vm.sh` unpacked and sees the host's file system
//! over 9p: it can read all of it, and its writes stay in its own memory. It runs one script as
//! root and ends with it. QEMU emulates the processor, since many hosts that offer `/dev/kvm`
//! cannot run a guest on it. Nothing in a machine is fast, so no measurement should be made in one.

mod channels;
mod qemu;
mod running;
mod sys;
mod vhost_user;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use channels::Channels;
use qemu::QEMU;

pub use running::{RunningVm, VmOutput};
pub use vhost_user::VhostUser;

/// Folder where `scripts/setup-vm.sh` puts the kernel, its modules and the initial file system.
const FILES: &str = "/var/cache/dray/vm";

/// Folder of another kernel and of netmap, which `scripts/setup-netmap.sh` builds for it.
pub const NETMAP_FILES: &str = "/var/cache/dray/vm-netmap";

/// Minimum memory in MiB. With less, the kernel does not start, or ends without a message.
const MEMORY_MIN: u32 = 128;

/// Builder of a virtual machine.
#[derive(Debug)]
pub struct Vm {
    name: String,
    memory_mib: u32,
    cpus: u32,
    arguments: Vec<String>,
    kernel_arguments: Vec<String>,
    vhost_user: Vec<VhostUser>,
    script: String,
    files: PathBuf,
}

impl Vm {
    /// Creates a machine with one CPU, 512 MiB of memory, no network, and an empty script. `name`
    /// appears in messages.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            memory_mib: 512,
            cpus: 1,
            arguments: Vec::new(),
            kernel_arguments: Vec::new(),
            vhost_user: Vec::new(),
            script: String::new(),
            files: FILES.into(),
        }
    }

    /// Boots the kernel in `folder` instead of the usual one, for example that in
    /// [`NETMAP_FILES`].
    pub fn files(mut self, folder: &str) -> Self {
        self.files = folder.into();
        self
    }

    /// Sets the guest's memory, at least 128 MiB. Files that the script writes are stored in it
    /// too.
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets the number of CPUs.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Adds a network card connected to a vhost-user socket. The first is `eth0`.
    pub fn vhost_user(mut self, card: VhostUser) -> Self {
        self.vhost_user.push(card);
        self
    }

    /// Adds QEMU arguments, such as `["-device", "igb,netdev=n"]`. The machine type is q35.
    pub fn arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    /// Adds a kernel argument, such as `intel_iommu=on`.
    pub fn kernel_argument(mut self, argument: &str) -> Self {
        self.kernel_arguments.push(argument.to_owned());
        self
    }

    /// Sets the script that runs in the guest, for `sh` or for the interpreter on its `#!` line.
    /// The script has the host's commands in PATH, all of BusyBox as `/busybox`, the kernel's
    /// modules where `modprobe` looks for them, and the driver of virtio network cards loaded.
    pub fn script(mut self, script: &str) -> Self {
        script.clone_into(&mut self.script);
        self
    }

    /// Runs the machine to its end, for at most `limit`.
    pub fn boot(self, limit: Duration) -> Result<VmOutput> {
        self.start()?.wait(limit)
    }

    /// Returns an error that says what to install if this host cannot run virtual machines.
    pub fn check() -> Result<()> {
        Self::check_files(Path::new(FILES))
    }

    fn check_files(folder: &Path) -> Result<()> {
        const REMEDY: &str = "scripts/setup-vm.sh installs it";
        if !folder.join("initrd").exists() {
            let folder = folder.display();
            bail!("virtual machines cannot run here: no kernel in {folder}; {REMEDY}");
        }
        if let Err(error) = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status() {
            bail!("virtual machines cannot run here: {QEMU}: {error}; {REMEDY}");
        }
        Ok(())
    }

    /// Starts the machine. It dies with the returned value, and with the calling thread.
    pub fn start(self) -> Result<RunningVm> {
        Self::check_files(&self.files)?;
        let Self { name, memory_mib, .. } = &self;
        if *memory_mib < MEMORY_MIN {
            bail!(
                "virtual machine {name}: {memory_mib} MiB of memory; at least {MEMORY_MIN} MiB are needed"
            );
        }
        let channels = Channels::new(&self.script).context("files in memory")?;
        let errors = channels.errors.as_stdio().context("standard error")?;
        let mut command = qemu::command(&self, &channels);
        let process = sys::spawn(command.stderr(errors)).context(QEMU)?;
        let sockets = self.vhost_user.into_iter().filter_map(VhostUser::into_own_socket).collect();
        Ok(RunningVm { name: self.name, process, channels, sockets })
    }
}

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
mod vm;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use channels::Channels;
use qemu::QEMU;
use vm::FILES;

pub use running::{RunningVm, VmOutput};
pub use vhost_user::VhostUser;
pub use vm::Vm;

/// Minimum memory in MiB. With less, the kernel does not start, or ends without a message.
const MEMORY_MIN: u32 = 128;

impl Vm {
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

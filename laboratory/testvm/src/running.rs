//! A virtual machine that has been started.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};

use crate::channels::Channels;

/// Polling interval of waits.
const INTERVAL: Duration = Duration::from_millis(10);

/// Result of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmOutput {
    /// Exit status of the script as the shell reports it: 128 and more after a signal.
    pub status: u8,
    /// Standard output and error of the script.
    pub output: String,
    /// Console output of the kernel.
    pub console: String,
}

/// A running machine. Dropping it kills it.
#[derive(Debug)]
pub struct RunningVm {
    pub(crate) name: String,
    pub(crate) process: Child,
    pub(crate) channels: Channels,
    /// Sockets that QEMU created and does not remove.
    pub(crate) sockets: Vec<PathBuf>,
}

impl RunningVm {
    /// Returns the script's output so far.
    pub fn output(&self) -> Result<String> {
        Ok(self.channels.output.text()?)
    }

    /// Waits until the script has written `text`, for at most `limit`.
    pub fn wait_until_output(&mut self, text: &str, limit: Duration) -> Result<()> {
        let what = format!("did not write '{text}'");
        self.wait_until(limit, &what, |vm, has_ended| {
            if vm.output()?.contains(text) {
                return Ok(Some(()));
            }
            if has_ended { Err(vm.failed(&format!("ended and {what}"))) } else { Ok(None) }
        })
    }

    /// Waits until the script and the machine have ended, for at most `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<VmOutput> {
        self.wait_until(limit, "did not end", |vm, has_ended| {
            if !has_ended {
                return Ok(None);
            }
            let status = vm.channels.exit_status()?;
            let status = status.ok_or_else(|| vm.failed("ended before its script"))?;
            let console = vm.channels.console.text()?;
            Ok(Some(VmOutput { status, output: vm.output()?, console }))
        })
    }

    /// Polls `done`, whose second argument is true once the machine has ended, until it returns a
    /// value.
    fn wait_until<T>(
        &mut self,
        limit: Duration,
        what: &str,
        done: impl Fn(&Self, bool) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            let has_ended = self.process.try_wait()?.is_some();
            if let Some(answer) = done(self, has_ended)? {
                return Ok(answer);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.failed(&format!("{what} within {limit:?}")));
            }
            sleep(INTERVAL.min(deadline - now));
        }
    }

    /// Returns an error with the last line that each part of the machine wrote.
    fn failed(&self, what: &str) -> Error {
        anyhow!("virtual machine {}: {what}{}", self.name, self.channels.last_words())
    }
}

impl Drop for RunningVm {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}

//! A virtual machine that has been started.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use super::VmOutput;
use super::channels::Channels;
use crate::{Cancel, LabError};

/// A running machine. Dropping it kills it.
#[derive(Debug)]
pub struct RunningVm {
    pub(super) name: String,
    pub(super) cancel: Cancel,
    pub(super) process: Child,
    pub(super) channels: Channels,
    /// Sockets that QEMU created and does not remove.
    pub(super) sockets: Vec<PathBuf>,
}

impl RunningVm {
    /// Returns the script's output so far.
    pub fn output(&self) -> Result<String, LabError> {
        self.channels.output.text().map_err(self.doing("output"))
    }

    /// Waits until the script has written `text`, for at most `limit`.
    pub fn wait_until_output(&mut self, text: &str, limit: Duration) -> Result<(), LabError> {
        let what = format!("did not write '{text}'");
        self.wait_until(limit, &what, |vm, has_ended| {
            if vm.output()?.contains(text) {
                return Ok(Some(()));
            }
            if has_ended { Err(vm.failed(&format!("ended and {what}"))) } else { Ok(None) }
        })
    }

    /// Waits until the script and the machine have ended, for at most `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<VmOutput, LabError> {
        self.wait_until(limit, "did not end", |vm, has_ended| {
            if !has_ended {
                return Ok(None);
            }
            let status = vm.channels.exit_status().map_err(vm.doing("exit status"))?;
            let status = status.ok_or_else(|| vm.failed("ended before its script"))?;
            let console = vm.channels.console.text().map_err(vm.doing("console"))?;
            Ok(Some(VmOutput { status, output: vm.output()?, console }))
        })
    }

    /// Polls `done`, whose second argument is true once the machine has ended, until it returns a
    /// value.
    fn wait_until<T>(
        &mut self,
        limit: Duration,
        what: &str,
        done: impl Fn(&Self, bool) -> Result<Option<T>, LabError>,
    ) -> Result<T, LabError> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.process.try_wait();
            let has_ended = ended.map_err(self.doing("wait"))?.is_some();
            if let Some(answer) = done(self, has_ended)? {
                return Ok(answer);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.failed(&format!("{what} within {limit:?}")));
            }
            self.cancel.sleep_until(deadline.min(now + Cancel::INTERVAL))?;
        }
    }

    fn doing(&self, what: &str) -> impl FnOnce(io::Error) -> LabError + use<> {
        LabError::doing(format!("virtual machine {}: {what}", self.name))
    }

    /// Returns an error with the last line that each part of the machine wrote.
    fn failed(&self, what: &str) -> LabError {
        let what = what.to_owned() + &self.channels.last_words();
        LabError::Vm { vm: self.name.clone(), what }
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

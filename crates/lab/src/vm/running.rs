//! A virtual machine that has been started.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use super::memory_file::MemoryFile;
use super::{Sockets, VmOutput};
use crate::{Cancel, LabError};

/// A running machine. Dropping it kills it.
#[derive(Debug)]
pub struct RunningVm {
    pub(super) name: String,
    pub(super) cancel: Cancel,
    pub(super) process: Child,
    pub(super) output: MemoryFile,
    pub(super) status: MemoryFile,
    pub(super) console: MemoryFile,
    pub(super) errors: MemoryFile,
    /// QEMU reads it while it starts.
    pub(super) _script: MemoryFile,
    pub(super) sockets: Sockets,
}

impl RunningVm {
    /// What the script has written so far.
    pub fn output(&self) -> Result<String, LabError> {
        self.text(&self.output)
    }

    /// Waits until the script has written `text`, at most for `limit`.
    pub fn wait_until_output(&mut self, text: &str, limit: Duration) -> Result<(), LabError> {
        let what = format!("did not write '{text}'");
        self.wait_until(limit, &what, |vm, has_ended| {
            if vm.output()?.contains(text) {
                return Ok(Some(()));
            }
            if has_ended { Err(vm.failed(&format!("ended and {what}"))) } else { Ok(None) }
        })
    }

    /// Waits until the script has ended and the machine with it, at most for `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<VmOutput, LabError> {
        self.wait_until(limit, "did not end", |vm, has_ended| {
            if !has_ended {
                return Ok(None);
            }
            let status = vm.text(&vm.status)?;
            let status = status.trim().strip_prefix("exit ").and_then(|s| s.parse().ok());
            let status = status.ok_or_else(|| vm.failed("ended before its script did"))?;
            let (output, console) = (vm.output()?, vm.text(&vm.console)?);
            Ok(Some(VmOutput { status, output, console }))
        })
    }

    /// Asks `done`, which is told whether the machine has ended, until it has an answer.
    fn wait_until<T>(
        &mut self,
        limit: Duration,
        what: &str,
        done: impl Fn(&Self, bool) -> Result<Option<T>, LabError>,
    ) -> Result<T, LabError> {
        let deadline = Instant::now() + limit;
        loop {
            let doing = LabError::doing(format!("virtual machine {}: wait", self.name));
            let has_ended = self.process.try_wait().map_err(doing)?.is_some();
            if let Some(answer) = done(self, has_ended)? {
                return Ok(answer);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.failed(&format!("{what} within {} s", limit.as_secs())));
            }
            self.cancel.sleep_until(deadline.min(now + Cancel::INTERVAL))?;
        }
    }

    fn text(&self, file: &MemoryFile) -> Result<String, LabError> {
        let doing = LabError::doing(format!("virtual machine {}: what it wrote", self.name));
        file.text().map_err(doing)
    }

    /// Says what went wrong and what each part of the machine said last.
    fn failed(&self, what: &str) -> LabError {
        let parts =
            [("QEMU", &self.errors), ("its kernel", &self.console), ("its script", &self.output)];
        let mut what = what.to_owned();
        for (part, file) in parts {
            let text = file.text().unwrap_or_default();
            if let Some(line) = text.lines().rfind(|line| !line.trim().is_empty()) {
                what += &format!("; {part} said last: {}", line.trim());
            }
        }
        LabError::Vm { vm: self.name.clone(), what }
    }
}

impl Drop for RunningVm {
    fn drop(&mut self) {
        // It may have ended already, which is what we want.
        let _ = self.process.kill();
        let _ = self.process.wait();
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}

//! Starts data threads.

use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};

/// Starts a data thread, pins it to `cpu`, and confines it if the process is in its sandbox; it
/// then does `work`. An error says why it did not start.
pub fn spawn(
    name: &str,
    cpu: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (sender, receiver) = mpsc::channel();
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        let result = confine(cpu);
        let is_ready = result.is_ok();
        if sender.send(result).is_ok() && is_ready {
            work();
        }
    })?;
    receiver
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the thread ended before it was ready")))?;
    Ok(thread)
}

fn confine(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    dray_sandbox::enter_data_thread().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_on_missing_cpu_does_not_start() {
        let work = || panic!("it must not start");
        let error = spawn("test", CpuSet::MAX_CPU - 1, work).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

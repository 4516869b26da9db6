//! Threads that serve a port's socket.

use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

/// Time for which the end of a thread is awaited. It ends at once unless a peer blocks it: closing
/// a file that a peer passed takes as long as the peer likes, if its file system is the peer's own.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A control thread, which owns all that it needs. Dropping this waits for its end, but not for a
/// thread that a peer blocks. The owner tells it to end before.
pub(crate) struct ControlThread {
    id: Pid,
    handle: Option<JoinHandle<()>>,
    /// Disconnects when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl ControlThread {
    pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (running, ended) = mpsc::channel::<()>();
        let (to_id, id) = mpsc::channel();
        let handle =
            std::thread::Builder::new().name("dray-control".to_owned()).spawn(move || {
                let _ = to_id.send(gettid());
                work();
                drop(running);
            })?;
        let id = id.recv().map_err(io::Error::other)?;
        Ok(Self { id, handle: Some(handle), ended: Mutex::new(ended) })
    }

    /// Moves the thread to `cpus`, if that is permitted.
    pub(crate) fn move_to(&self, cpus: &CpuSet) {
        let _ = sched_setaffinity(Some(self.id), cpus);
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_blocked = ended.recv_timeout(JOIN_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
        if let Some(handle) = self.handle.take().filter(|_| !is_blocked) {
            // The thread ends only by itself or by a panic, which has been reported.
            let _ = handle.join();
        }
    }
}

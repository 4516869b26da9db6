//! Messages to the program that supervises this one: systemd's notification protocol
//! (sd_notify(3)).
//!
//! The environment names the supervisor's socket (`NOTIFY_SOCKET`) and the time after which it
//! restarts a service without a sign of life (`WATCHDOG_USEC`). Without such a socket nothing is
//! sent.

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_socket::SocketName;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    connect, sendmsg, socket_with,
};
use rustix::process::getpid;
use tracing::warn;

use crate::http::DESCRIPTORS_MAX;

/// Maximum time in milliseconds to wait for a supervisor to read.
const PATIENCE_MS: u32 = 100;

/// Supervisor of the process, if there is one.
#[derive(Debug, Default)]
pub struct Supervisor {
    pub(crate) socket: Option<Arc<NotifySocket>>,
    /// Interval in which it wants a sign of life, and when the next one is due.
    watchdog: Option<(Duration, Instant)>,
    /// Message that the program is ready, until the supervisor, which may be slow to read, has
    /// taken it.
    pending_ready: Option<String>,
}

impl Supervisor {
    /// Connects to the supervisor that the environment names. If that fails, it is logged, and the
    /// program continues without a supervisor: the variable may be meant for another program.
    pub fn from_environment() -> Self {
        let variable = |name| env::var(name).ok();
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let socket = match NotifySocket::open(&name) {
            Ok(socket) => socket,
            Err(error) => {
                warn!(socket = name, error = %error, "no connection to the supervisor");
                return Self::default();
            }
        };
        let own = getpid().to_string();
        let is_own = variable("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let micros = variable("WATCHDOG_USEC").and_then(|micros| micros.parse().ok());
        let micros = micros.filter(|micros| is_own && *micros > 0);
        // Half the time, as sd_watchdog_enabled(3) recommends.
        let watchdog = micros.map(|micros| (Duration::from_micros(micros) / 2, Instant::now()));
        Self { socket: Some(Arc::new(socket)), watchdog, pending_ready: None }
    }

    /// Reports that the program serves its clients, and what it does. If the supervisor is slow to
    /// read, [`tend`](Self::tend) reports it again.
    pub fn ready(&mut self, status: &str) {
        self.pending_ready = Some(format!("READY=1\nSTATUS={status}"));
        self.send_ready();
    }

    fn send_ready(&mut self) {
        let Some(message) = &self.pending_ready else { return };
        // A supervisor that has gone away gets no message.
        let is_behind = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if !self.send(message, &[]).is_err_and(is_behind) {
            self.pending_ready = None;
        }
    }

    /// Sends the watchdog a sign of life, if one is due and `check` succeeds. Must be called many
    /// times a second.
    ///
    /// # Errors
    /// Returns the error of `check`, at each call until `check` succeeds or the watchdog acts.
    pub fn tend(&mut self, check: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        self.send_ready();
        let Some((interval, due)) = &mut self.watchdog else { return Ok(()) };
        if Instant::now() < *due {
            return Ok(());
        }
        check()?;
        *due = Instant::now() + *interval;
        // A supervisor that has gone away has no watchdog.
        let _ = self.send("WATCHDOG=1", &[]);
        Ok(())
    }

    /// Reports that the program ends.
    pub fn stopping(&self) {
        let _ = self.send("STOPPING=1", &[]);
    }

    /// Sends `message`, lines of `NAME=VALUE`, with up to [`DESCRIPTORS_MAX`] file descriptors.
    /// Does nothing without a supervisor.
    pub fn send(&self, message: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), |socket| socket.send(message, descriptors))
    }
}

/// The connection to a supervisor.
#[derive(Debug)]
pub(crate) struct NotifySocket(OwnedFd);

impl NotifySocket {
    /// Connects to the socket that `NOTIFY_SOCKET` names.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let address = SocketName::parse(name).map_err(wrong)?.address()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        connect(&socket, &address)?;
        Ok(Self(socket))
    }

    /// Sends a message. Waits for a while if the supervisor is slow to read.
    pub(crate) fn send(&self, message: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Self(socket) = self;
        if descriptors.len() > DESCRIPTORS_MAX {
            let count = descriptors.len();
            let what = format!("{count} file descriptors: at most {DESCRIPTORS_MAX} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            // There is space for them.
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(message.as_bytes())];
        for _ in 0..PATIENCE_MS {
            match sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
                sent => return Ok(sent.map(drop)?),
            }
        }
        Err(Errno::AGAIN.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn messages_and_descriptors_reach_supervisor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let there = UnixDatagram::bind(&path).unwrap();
        let socket = Some(Arc::new(NotifySocket::open(path.to_str().unwrap()).unwrap()));
        let watchdog = Some((Duration::from_secs(1000), Instant::now()));
        let mut supervisor = Supervisor { socket, watchdog, pending_ready: None };
        let received = || {
            let mut bytes = [0; 64];
            let length = there.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        supervisor.ready("2 ports");
        assert_eq!(received(), "READY=1\nSTATUS=2 ports");
        let file = File::open("/dev/null").unwrap();
        supervisor.send("FDSTORE=1\nFDNAME=a", &[file.as_fd()]).unwrap();
        assert_eq!(received(), "FDSTORE=1\nFDNAME=a");
        let many = vec![file.as_fd(); DESCRIPTORS_MAX + 1];
        let error = supervisor.send("FDSTORE=1", &many).unwrap_err().to_string();
        assert_eq!(error, "18 file descriptors: at most 17 are allowed");
        // A sign of life is sent once data threads are well, and not before the next one is due.
        assert_eq!(supervisor.tend(|| Err("stuck".to_owned())), Err("stuck".to_owned()));
        supervisor.tend(|| Ok(())).unwrap();
        assert_eq!(received(), "WATCHDOG=1");
        supervisor.tend(|| Err("not asked".to_owned())).unwrap();
        // The message "ready" is sent once the supervisor reads again.
        while supervisor.send("STATUS=many", &[]).is_ok() {}
        supervisor.ready("3 ports");
        assert_eq!(received(), "STATUS=many");
        supervisor.tend(|| Ok(())).unwrap();
        let last = std::iter::repeat_with(received).find(|message| message != "STATUS=many");
        assert_eq!(last.unwrap(), "READY=1\nSTATUS=3 ports");
        // Without a supervisor nothing happens, and one that is gone is no error of the program.
        Supervisor::default().send("READY=1", &[]).unwrap();
        drop(there);
        supervisor.stopping();
    }

    #[test]
    fn socket_that_is_not_there_is_an_error() {
        for name in ["/nonexistent/notify", "@dray-test-no-such-supervisor", ""] {
            assert!(NotifySocket::open(name).is_err(), "{name}");
        }
    }
}

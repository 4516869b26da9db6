//! One stream on the sender's side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with, sockopt,
};

use super::calls::{self, TcpInfo};
use super::pattern::{self, HEAD_LEN, Pattern};
use super::{Family, StreamUri, ZeroCopy};
use crate::links::Awaited;
use crate::{Phase, Signal};

/// Time that a receiver may take to listen.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause after a refused connection.
const AGAIN: Duration = Duration::from_millis(5);

/// A connection, on the sender's side.
pub(super) struct Outgoing {
    pub(super) socket: OwnedFd,
    number: u16,
    pub(super) sent: u64,
    zerocopy: Option<ZeroCopy>,
    /// Calls with `MSG_ZEROCOPY` that the kernel accepted.
    pending: u64,
}

impl Outgoing {
    /// Connects stream `number` as soon as a receiver listens.
    pub(super) fn connect(
        uri: &StreamUri,
        number: u16,
        signal: &Signal,
        awaited: &Awaited,
    ) -> io::Result<Self> {
        let wait = |why| awaited.set(Some(format!("a receiver at {uri}: {why}")));
        wait("no answer");
        let deadline = Instant::now() + PATIENCE;
        let socket = loop {
            let socket = new_socket(uri.family)?;
            match try_connect(&socket, uri, deadline, signal) {
                Ok(()) => break socket,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    if Instant::now() > deadline || signal.phase() != Phase::Run {
                        return Err(error);
                    }
                    wait("nothing listens there");
                    thread::sleep(AGAIN);
                }
                Err(error) => return Err(error),
            }
        };
        if uri.zerocopy {
            calls::allow_zerocopy(socket.as_fd())?;
        }
        let zerocopy = uri.zerocopy.then(ZeroCopy::default);
        Ok(Self { socket, number, sent: 0, zerocopy, pending: 0 })
    }

    /// Writes once, at most a whole call's bytes; returns the number of bytes accepted.
    pub(super) fn write(&mut self, pattern: &Pattern) -> io::Result<usize> {
        let head = pattern::head(self.number);
        let bytes = match usize::try_from(self.sent) {
            Ok(sent @ 0..HEAD_LEN) => &head[sent..],
            _ => pattern.at(self.number, self.sent),
        };
        let mut flags = SendFlags::NOSIGNAL;
        // The head does not live long enough for zero-copy.
        let without_copy = self.zerocopy.is_some() && self.sent >= HEAD_LEN as u64;
        if without_copy {
            flags |= SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);
        }
        match send(&self.socket, bytes, flags) {
            Ok(sent) => {
                self.sent += sent as u64;
                self.pending += u64::from(without_copy);
                Ok(sent)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            // The limit of locked memory is reached: completed calls will free some.
            Err(Errno::NOBUFS) if without_copy => self.collect().map(|()| 0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Records completed calls, whose memory the kernel has released.
    pub(super) fn collect(&mut self) -> io::Result<()> {
        let Some(zerocopy) = &mut self.zerocopy else { return Ok(()) };
        while let Some(completion) = calls::completion(self.socket.as_fd())? {
            let calls = u64::from(completion.calls);
            zerocopy.completed += calls;
            zerocopy.copied += if completion.copied { calls } else { 0 };
        }
        Ok(())
    }

    /// Returns true if the kernel has completed every call.
    pub(super) fn is_collected(&self) -> bool {
        self.zerocopy.is_none_or(|zerocopy| zerocopy.completed >= self.pending)
    }

    /// Returns counts of zero-copy calls, if they were requested.
    pub(super) fn zerocopy(&self) -> Option<ZeroCopy> {
        self.zerocopy
    }

    /// Returns the kernel's counters of the connection, or zeros if they are not available.
    pub(super) fn info(&self) -> TcpInfo {
        calls::tcp_info(self.socket.as_fd()).unwrap_or_default()
    }

    /// Returns the congestion control, if the kernel reports it.
    pub(super) fn congestion(&self) -> String {
        sockopt::tcp_congestion(&self.socket).unwrap_or_default()
    }
}

impl Family {
    /// Returns true if the kernel has such sockets.
    pub fn is_supported(self) -> bool {
        new_socket(self).is_ok()
    }
}

/// Creates a socket that never blocks.
pub(super) fn new_socket(family: Family) -> io::Result<OwnedFd> {
    /// `AF_SMC` of linux/socket.h.
    const AF_SMC: u16 = 43;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let domain = match family {
        Family::Tcp => AddressFamily::INET,
        Family::Smc => AddressFamily::from_raw(AF_SMC),
    };
    // For SMC, protocol 0 is the one over IPv4.
    match socket_with(domain, SocketType::STREAM, flags, None) {
        Err(Errno::AFNOSUPPORT) if family == Family::Smc => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no SMC sockets (CONFIG_SMC); if it is a module, run `modprobe smc`",
        )),
        result => Ok(result?),
    }
}

/// Connects one socket; refused if no receiver listens yet.
fn try_connect(
    socket: &OwnedFd,
    uri: &StreamUri,
    deadline: Instant,
    signal: &Signal,
) -> io::Result<()> {
    match connect(socket, &uri.address) {
        Err(Errno::INPROGRESS) => {}
        result => return Ok(result?),
    }
    let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::OUT)];
        match poll(&mut fds, Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(sockopt::socket_error(socket)??),
            Err(errno) => return Err(errno.into()),
        }
        if Instant::now() > deadline || signal.phase() != Phase::Run {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

//! AF_XDP sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use dray_netdev::Interface;
use dray_xdp::Mode;
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpOptionsFlags, XdpStatistics,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, sockopt,
};

use super::program::Program;
use super::ring::{Consumer, FILL_RING_LEN, Fill, Producer, RING_LEN};
use super::umem::{Seat, Umem};
use super::{AfxdpUri, CopyMode};
use crate::socket::{enlarge_buffers, set_option};

/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` of asm-generic/socket.h.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// Frames that the driver is asked for in one busy poll.
const BUSY_POLL_BUDGET: libc::c_int = 64;

/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h: frames that one call transmits in copy mode. Linux 6.18
/// has it; before, it was always 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// A socket's step failed: what it was, and what the kernel said.
pub(super) type Failed = (&'static str, io::Error);

/// The rings of a socket.
pub(super) struct Rings {
    pub(super) rx: Consumer<XdpDesc>,
    pub(super) fill: Fill,
    pub(super) tx: Producer<XdpDesc>,
    pub(super) completion: Consumer<u64>,
}

/// A socket that belongs to one queue of an interface.
pub(super) struct Socket {
    fd: OwnedFd,
    /// Its chunks, which others may have once it is closed.
    seat: Seat,
    /// What gives it frames.
    program: Arc<Program>,
    mode: CopyMode,
    /// Frames may lie in several chunks.
    parts: bool,
    /// The kernel says when it has to be called.
    says_wakeup: bool,
    busy_polls: bool,
}

impl Socket {
    /// A socket with its rings, not bound yet. Only the first socket of a UMEM tells the kernel of it.
    /// `parts`: frames may lie in several chunks.
    pub(super) fn new(
        uri: &AfxdpUri,
        seat: Seat,
        program: Arc<Program>,
        first: bool,
        parts: bool,
    ) -> Result<(Self, Rings), Failed> {
        let fail = |what| move |errno: Errno| (what, errno.into());
        let fd = rustix::net::socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(fail("AF_XDP socket"))?;
        if first {
            sockopt::set_xdp_umem_reg(&fd, seat.umem.registration())
                .map_err(fail("XDP_UMEM_REG"))?;
        }
        sockopt::set_xdp_umem_fill_ring_size(&fd, FILL_RING_LEN).map_err(fail("fill ring"))?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, RING_LEN)
            .map_err(fail("completion ring"))?;
        sockopt::set_xdp_rx_ring_size(&fd, RING_LEN).map_err(fail("RX ring"))?;
        sockopt::set_xdp_tx_ring_size(&fd, RING_LEN).map_err(fail("TX ring"))?;
        let at = sockopt::xdp_mmap_offsets(&fd).map_err(fail("XDP_MMAP_OFFSETS"))?;
        let map = |what| move |error| (what, error);
        let socket = fd.as_fd();
        let rings = Rings {
            rx: Consumer::map(socket, XDP_PGOFF_RX_RING, &at.rx).map_err(map("RX ring"))?,
            fill: Producer::map(socket, XDP_UMEM_PGOFF_FILL_RING, &at.fr)
                .map_err(map("fill ring"))?,
            tx: Producer::map(socket, XDP_PGOFF_TX_RING, &at.tx).map_err(map("TX ring"))?,
            completion: Consumer::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr)
                .map_err(map("completion ring"))?,
        };
        enlarge_buffers(socket).map_err(|error| ("SO_SNDBUF", error))?;
        // Where the kernel has no such option, a call transmits fewer frames.
        let _ = set_option(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, RING_LEN);
        if let Some(microseconds) = uri.busy_poll {
            let options = [
                (SO_PREFER_BUSY_POLL, 1),
                (libc::SO_BUSY_POLL, microseconds.into()),
                (SO_BUSY_POLL_BUDGET, BUSY_POLL_BUDGET),
            ];
            for (name, value) in options {
                set_option::<libc::c_int>(socket, libc::SOL_SOCKET, name, value)
                    .map_err(|error| ("SO_PREFER_BUSY_POLL (Linux 5.11)", error))?;
            }
        }
        let (says_wakeup, busy_polls) = (uri.wakeup, uri.busy_poll.is_some());
        let mode = uri.mode;
        let socket = Self { fd, seat, program, mode, parts, says_wakeup, busy_polls };
        Ok((socket, rings))
    }

    /// As [`try_bind`](Self::try_bind), with some patience where the queue is another socket's, or the
    /// driver does something else.
    pub(super) fn bind(
        &self,
        uri: &AfxdpUri,
        queue: u32,
        other: Option<&Self>,
    ) -> Result<(), Failed> {
        if let Some(other) = other {
            self.check_shared(other)?;
        }
        // The kernel takes its time to give back what a socket had that was closed, or whose process
        // was killed.
        const BUSY_MAX: Duration = Duration::from_millis(500);
        // A card starts anew when a program is attached to it.
        const RESET_MAX: Duration = Duration::from_secs(5);
        let begin = Instant::now();
        loop {
            let result = self.try_bind(uri, queue, other);
            let errno = result.as_ref().err().and_then(|(_, error)| Errno::from_io_error(error));
            let patience = match errno {
                Some(Errno::BUSY) => BUSY_MAX,
                Some(Errno::NXIO | Errno::NETDOWN) => RESET_MAX,
                _ => return result,
            };
            if begin.elapsed() > patience {
                return result;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The kernel binds a socket that shares a UMEM as it did the first, whatever is asked for.
    fn check_shared(&self, other: &Self) -> Result<(), Failed> {
        let differs = if self.mode != other.mode || self.says_wakeup != other.says_wakeup {
            "ports that share a UMEM have the same mode= and wakeup="
        } else if self.parts && !other.parts {
            "frames of this interface's MTU take several chunks, those of the first port that has \
             this UMEM do not: open this port first, or give all of them chunk=4096"
        } else {
            return Ok(());
        };
        Err(("UMEM", io::Error::new(io::ErrorKind::InvalidInput, differs)))
    }

    /// Binds the socket to a queue of its program's interface, with the memory of `other`, where that has
    /// told the kernel of it.
    fn try_bind(&self, uri: &AfxdpUri, queue: u32, other: Option<&Self>) -> Result<(), Failed> {
        let parts = self.parts;
        let interface = self.program.interface().index();
        let result = match other {
            // All else is as with the other one.
            Some(other) => {
                let addr =
                    SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface, queue);
                let addr = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: other.as_fd() };
                rustix::net::bind(&self.fd, &addr)
            }
            None => {
                let mut flags = match uri.mode {
                    CopyMode::Copy => SocketAddrXdpFlags::XDP_COPY,
                    CopyMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
                    // Some drivers would promise it, and then transmit nothing.
                    CopyMode::Auto if self.program.mode() == Mode::Generic => {
                        SocketAddrXdpFlags::XDP_COPY
                    }
                    CopyMode::Auto => SocketAddrXdpFlags::empty(),
                };
                flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, uri.wakeup);
                flags.set(SocketAddrXdpFlags::XDP_USE_SG, parts);
                rustix::net::bind(&self.fd, &SocketAddrXdp::new(flags, interface, queue))
            }
        };
        let what = match result {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) => "bind: another AF_XDP socket has this queue",
            Err(Errno::OPNOTSUPP) if uri.mode == CopyMode::ZeroCopy => {
                "bind: the driver has no zero copy mode for AF_XDP; mode=copy works everywhere, and \
                 mode=auto chooses that by itself"
            }
            Err(Errno::INVAL) if parts => {
                "bind: no such queue, or frames of this MTU, which take several chunks, are not \
                 supported here (Linux 6.6); chunk=4096 holds longer ones"
            }
            Err(Errno::INVAL) => "bind: no such queue",
            Err(_) => "bind",
        };
        result.map_err(|errno| (what, errno.into()))
    }

    /// Whether frames are not copied between the driver's memory and ours.
    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let options = sockopt::xdp_options(&self.fd)?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    pub(super) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(&self.fd)?)
    }

    pub(super) fn umem(&self) -> &Arc<Umem> {
        &self.seat.umem
    }

    pub(super) fn interface(&self) -> &Interface {
        self.program.interface()
    }

    /// Whether the interface was removed, and the socket belongs to no queue any more.
    pub(super) fn is_gone(&self) -> bool {
        let answer = self.ask();
        // Without copies it may be the driver that says so, because it is not ready.
        answer.is_err_and(|error| error.raw_os_error() == Some(Errno::NXIO.raw_os_error()))
            && !(self.is_zero_copy().unwrap_or(false) && self.interface().exists())
    }

    /// Calls the kernel, which fills the RX ring or says what is wrong.
    pub(super) fn ask(&self) -> io::Result<()> {
        ignore(recv(&self.fd, &mut [0; 0][..], RecvFlags::DONTWAIT).map(|(_, len)| len))
    }

    /// Calls the kernel where it may wait for that to fill the RX ring.
    #[inline]
    pub(super) fn wake_receive(&self, fill: &Fill) -> io::Result<()> {
        if self.busy_polls || fill.needs_wakeup() { self.ask() } else { Ok(()) }
    }

    /// Calls the kernel where it may wait for that to empty the TX ring.
    #[inline]
    pub(super) fn wake_transmit(&self, tx: &Producer<XdpDesc>) -> io::Result<()> {
        // In copy mode a call transmits a part of what there is; none may transmit anything while
        // frames sent before have not left.
        const FRUITLESS_MAX: u32 = 16;
        let mut fruitless = 0;
        let mut waiting = tx.waiting();
        // Else the flag could be read before the kernel sees what was submitted, and be set since.
        fence(Ordering::SeqCst);
        while waiting > 0
            && fruitless < FRUITLESS_MAX
            && (!self.says_wakeup || self.busy_polls || tx.needs_wakeup())
        {
            let result = send(&self.fd, &[], SendFlags::DONTWAIT);
            if result == Err(Errno::NETDOWN) {
                break;
            }
            ignore(result)?;
            let left = tx.waiting();
            fruitless = if left == waiting { fruitless + 1 } else { 0 };
            waiting = left;
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// There is nothing to do, or not at present, or the interface is down: none of it ends the port.
fn ignore(result: rustix::io::Result<usize>) -> io::Result<()> {
    const IGNORED: [Errno; 6] =
        [Errno::AGAIN, Errno::BUSY, Errno::NOBUFS, Errno::NOMEM, Errno::INTR, Errno::NETDOWN];
    match result {
        Err(errno) if !IGNORED.contains(&errno) => Err(errno.into()),
        _ => Ok(()),
    }
}

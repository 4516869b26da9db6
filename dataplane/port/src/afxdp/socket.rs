//! AF_XDP sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use dray_bpf::Mode;
use dray_netdev::Interface;
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
use super::umem::{Umem, UmemSlot};
use super::{AfxdpUri, CopyMode};
use crate::session::passed::describe;
use crate::socket::{enlarge_buffers, set_option};
use crate::uri::failed::Failed;
use crate::uri::failed::refused;

/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` of asm-generic/socket.h.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// Number of frames that the driver is asked for per busy poll.
const BUSY_POLL_BUDGET: libc::c_int = 64;

/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h: number of frames that one call transmits in copy
/// mode. Since Linux 6.18; before, it was always 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Rings of a socket.
pub(super) struct Rings {
    pub(super) rx: Consumer<XdpDesc>,
    pub(super) fill: Fill,
    pub(super) tx: Producer<XdpDesc>,
    pub(super) completion: Consumer<u64>,
}

/// A socket of one queue of an interface.
pub(super) struct Socket {
    fd: OwnedFd,
    /// The socket's chunks, which another socket may get once this one is closed.
    slot: UmemSlot,
    /// The program that delivers frames to the socket.
    program: Arc<Program>,
    mode: CopyMode,
    /// True if frames may lie in several chunks.
    parts: bool,
    /// True with `XDP_USE_NEED_WAKEUP`: the kernel sets a flag when it needs a call.
    uses_need_wakeup: bool,
    busy_polls: bool,
}

impl Rings {
    /// Maps the rings of a socket.
    fn map(socket: BorrowedFd<'_>) -> Result<Self, Failed> {
        let at = sockopt::xdp_mmap_offsets(socket)
            .map_err(|errno| ("XDP_MMAP_OFFSETS", errno.into()))?;
        let map = |what| move |error| (what, error);
        Ok(Self {
            rx: Consumer::map(socket, XDP_PGOFF_RX_RING, &at.rx).map_err(map("RX ring"))?,
            fill: Producer::map(socket, XDP_UMEM_PGOFF_FILL_RING, &at.fr)
                .map_err(map("fill ring"))?,
            tx: Producer::map(socket, XDP_PGOFF_TX_RING, &at.tx).map_err(map("TX ring"))?,
            completion: Consumer::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr)
                .map_err(map("completion ring"))?,
        })
    }
}

impl Socket {
    /// Creates a socket with its rings, not bound yet. Only the first socket of a UMEM registers it
    /// with the kernel. `parts`: frames may lie in several chunks.
    pub(super) fn new(
        uri: &AfxdpUri,
        slot: UmemSlot,
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
            sockopt::set_xdp_umem_reg(&fd, slot.umem.registration())
                .map_err(fail(crate::UMEM_REGISTRATION))?;
        }
        sockopt::set_xdp_umem_fill_ring_size(&fd, FILL_RING_LEN).map_err(fail("fill ring"))?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, RING_LEN)
            .map_err(fail("completion ring"))?;
        sockopt::set_xdp_rx_ring_size(&fd, RING_LEN).map_err(fail("RX ring"))?;
        sockopt::set_xdp_tx_ring_size(&fd, RING_LEN).map_err(fail("TX ring"))?;
        let socket = fd.as_fd();
        let rings = Rings::map(socket)?;
        enlarge_buffers(socket).map_err(|error| ("SO_SNDBUF", error))?;
        // If the kernel has no such option, a call transmits fewer frames.
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
        Ok((Self::of(uri, fd, slot, program, parts), rings))
    }

    /// Continues with the socket of another process.
    pub(super) fn resume(
        uri: &AfxdpUri,
        fd: OwnedFd,
        slot: UmemSlot,
        program: Arc<Program>,
    ) -> Result<(Self, Rings), Failed> {
        if sockopt::socket_domain(&fd) != Ok(AddressFamily::XDP) {
            return Err(refused(format!("it is {}; give an AF_XDP socket", describe(&fd))));
        }
        let (rings, parts) = (Rings::map(fd.as_fd())?, slot.has_parts());
        Ok((Self::of(uri, fd, slot, program, parts), rings))
    }

    fn of(uri: &AfxdpUri, fd: OwnedFd, slot: UmemSlot, program: Arc<Program>, parts: bool) -> Self {
        let (uses_need_wakeup, busy_polls) = (uri.wakeup, uri.busy_poll.is_some());
        Self { fd, slot, program, mode: uri.mode, parts, uses_need_wakeup, busy_polls }
    }

    /// Returns the descriptors with which another process continues.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let shared = self.umem().descriptors().into_iter().chain(self.program.descriptors());
        [self.fd.as_fd()].into_iter().chain(shared)
    }

    /// Like [`try_bind`](Self::try_bind), but retries for some time if another socket has the queue
    /// or the driver is busy.
    pub(super) fn bind(
        &self,
        uri: &AfxdpUri,
        queue: u32,
        other: Option<&Self>,
    ) -> Result<(), Failed> {
        if let Some(other) = other {
            self.check_shared(other)?;
        }
        // The kernel releases the queue of a socket that was closed, or whose process was killed,
        // in a worker of its own (`xp_put_pool`), which a busy machine runs late.
        const BUSY_MAX: Duration = Duration::from_secs(2);
        // A network card resets when a program is attached to it.
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

    /// Checks that the socket fits the first one of its UMEM: the kernel binds it like that one,
    /// whatever is requested.
    fn check_shared(&self, other: &Self) -> Result<(), Failed> {
        let differs = if self.mode != other.mode || self.uses_need_wakeup != other.uses_need_wakeup
        {
            "ports that share a UMEM must have the same mode= and wakeup="
        } else if self.parts && !other.parts {
            "frames of this interface's MTU need several chunks, those of the UMEM's first port do \
             not: open this port first, or set chunk=4096 for all of them"
        } else {
            return Ok(());
        };
        Err(("UMEM", io::Error::new(io::ErrorKind::InvalidInput, differs)))
    }

    /// Binds the socket to a queue of its program's interface, with the UMEM that `other`
    /// registered, if given.
    fn try_bind(&self, uri: &AfxdpUri, queue: u32, other: Option<&Self>) -> Result<(), Failed> {
        let parts = self.parts;
        let interface = self.program.interface().index();
        let result = match other {
            // All other options are those of the other socket.
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
                    // Some drivers would accept zero copy, and then transmit nothing.
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
            Err(Errno::BUSY) => "bind: another AF_XDP socket uses this queue",
            Err(Errno::OPNOTSUPP) if uri.mode == CopyMode::ZeroCopy => {
                "bind: the driver does not support AF_XDP zero copy; use mode=copy or mode=auto"
            }
            Err(Errno::INVAL) if parts => {
                "bind: no such queue, or frames of this MTU need several chunks and Linux 6.6; \
                 chunk=4096 holds longer frames"
            }
            Err(Errno::INVAL) => "bind: no such queue",
            Err(_) => "bind",
        };
        result.map_err(|errno| (what, errno.into()))
    }

    /// Returns true if frames are not copied between the driver's memory and ours.
    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let options = sockopt::xdp_options(&self.fd)?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    pub(super) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(&self.fd)?)
    }

    pub(super) fn umem(&self) -> &Arc<Umem> {
        &self.slot.umem
    }

    pub(super) fn slot(&self) -> &UmemSlot {
        &self.slot
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    pub(super) fn interface(&self) -> &Interface {
        self.program.interface()
    }

    /// Returns true if the interface was removed.
    pub(super) fn is_gone(&self) -> bool {
        let answer = self.call();
        // In zero-copy mode the error may come from the driver, because it is not ready.
        answer.is_err_and(|error| error.raw_os_error() == Some(Errno::NXIO.raw_os_error()))
            && !(self.is_zero_copy().unwrap_or(false) && self.interface().exists())
    }

    /// Calls the kernel, which fills the RX ring or returns an error.
    pub(super) fn call(&self) -> io::Result<()> {
        ignore(recv(&self.fd, &mut [0; 0][..], RecvFlags::DONTWAIT).map(|(_, len)| len))
    }

    /// Calls the kernel if it may be waiting for a call to fill the RX ring.
    #[inline]
    pub(super) fn wake_receive(&self, fill: &Fill) -> io::Result<()> {
        if self.busy_polls || fill.needs_wakeup() { self.call() } else { Ok(()) }
    }

    /// Calls the kernel if it may be waiting for a call to empty the TX ring.
    #[inline]
    pub(super) fn wake_transmit(&self, tx: &Producer<XdpDesc>) -> io::Result<()> {
        // In copy mode a call transmits only some of the frames, and may transmit none while frames
        // sent before have not left.
        const EMPTY_CALLS_MAX: u32 = 16;
        let mut fruitless = 0;
        let mut waiting = tx.waiting();
        // Without the fence the flag could be read before the kernel sees the submitted entries,
        // and be set after that.
        fence(Ordering::SeqCst);
        while waiting > 0
            && fruitless < EMPTY_CALLS_MAX
            && (!self.uses_need_wakeup || self.busy_polls || tx.needs_wakeup())
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

/// Ignores errors that do not end the port: nothing to do, not possible at present, or interface
/// down.
fn ignore(result: rustix::io::Result<usize>) -> io::Result<()> {
    const IGNORED: [Errno; 6] =
        [Errno::AGAIN, Errno::BUSY, Errno::NOBUFS, Errno::NOMEM, Errno::INTR, Errno::NETDOWN];
    match result {
        Err(errno) if !IGNORED.contains(&errno) => Err(errno.into()),
        _ => Ok(()),
    }
}

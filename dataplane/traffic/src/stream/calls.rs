//! System calls on streams that rustix does not offer.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// The kernel's counters of a TCP connection (`struct tcp_info` of linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpInfo {
    /// Maximum segment size, in bytes.
    pub(super) segment_max: u32,
    /// Retransmitted segments.
    pub(super) retransmits: u32,
    /// Bytes that arrived in order. A connection's end counts as one.
    pub(super) received: u64,
}

/// `getsockopt(TCP_INFO)`.
pub(super) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    // Up to tcpi_bytes_received, which exists since Linux 4.1.
    const LEN: usize = 136;
    let mut info = [0_u8; LEN];
    let mut len = LEN as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let u32_at = |at| u32::from_ne_bytes(*info[at..].first_chunk().expect("it is long enough"));
    let u64_at = |at| u64::from_ne_bytes(*info[at..].first_chunk().expect("it is long enough"));
    Ok(TcpInfo { segment_max: u32_at(16), retransmits: u32_at(100), received: u64_at(128) })
}

/// Lets a socket send without copying (`SO_ZEROCOPY`).
pub(super) fn allow_zerocopy(socket: BorrowedFd<'_>) -> io::Result<()> {
    let yes: libc::c_int = 1;
    // SAFETY: the kernel reads one integer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            ptr::from_ref(&yes).cast(),
            mem::size_of_val(&yes) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Calls with `MSG_ZEROCOPY` whose memory the kernel has released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// Number of calls.
    pub(super) calls: u32,
    /// True if the kernel copied after all.
    pub(super) copied: bool,
}

/// Takes one message off the socket's error queue; `None` if the queue is empty.
pub(super) fn completion(socket: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
    /// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED` of linux/errqueue.h.
    const ORIGIN: u8 = 5;
    const COPIED: u8 = 1;
    // A control message with an extended error and the address that may follow it, aligned as
    // control messages are.
    let mut control = [0_u64; 16];
    // SAFETY: an all-zero msghdr is a valid value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header refers only to `control`, which outlives the call.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    // SAFETY: the kernel has filled in the header.
    let message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    if message.is_null() {
        return Ok(None);
    }
    // SAFETY: the message lies in `control`, which has room for a whole message after its header.
    let error: libc::sock_extended_err =
        unsafe { ptr::read_unaligned(libc::CMSG_DATA(message).cast()) };
    if error.ee_origin != ORIGIN {
        return Err(io::Error::from_raw_os_error(error.ee_errno as i32));
    }
    // Numbers of the first and the last call; they wrap.
    let calls = error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1);
    Ok(Some(Completion { calls, copied: error.ee_code & COPIED != 0 }))
}

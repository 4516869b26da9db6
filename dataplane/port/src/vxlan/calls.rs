//! `recvmmsg` and `sendmmsg` with addresses, and with the size of the datagrams that the kernel
//! merges into a message or cuts it into.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::net::SendFlags;

/// Maximum length of a message, in bytes: that of a UDP datagram is a little less.
const MESSAGE_LEN: usize = 1 << 16;
/// Distance of two messages' buffers: an odd number of cache lines spreads their first lines over
/// all sets of the cache.
const STRIDE: usize = MESSAGE_LEN + 64;

/// The size of a message's datagrams, as the kernel reports it (`UDP_GRO`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Merged {
    header: libc::cmsghdr,
    size: libc::c_int,
    /// Padding up to `CMSG_SPACE`.
    padding: u32,
}

/// The size of the datagrams that the kernel cuts a message into (`UDP_SEGMENT`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Cut {
    header: libc::cmsghdr,
    size: u16,
    padding: [u16; 3],
}

const _: () = assert!(size_of::<Merged>() == 24 && size_of::<Cut>() == 24);
/// `CMSG_LEN` of both.
const MERGED_LEN: usize = size_of::<libc::cmsghdr>() + size_of::<libc::c_int>();
const CUT_LEN: usize = size_of::<libc::cmsghdr>() + size_of::<u16>();

/// A socket address as the kernel reads it.
#[derive(Clone, Copy)]
pub(super) enum Name {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for Name {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}

impl Name {
    fn parts(&self) -> (*const libc::c_void, usize) {
        match self {
            Self::V4(name) => (ptr::from_ref(name).cast(), size_of_val(name)),
            Self::V6(name) => (ptr::from_ref(name).cast(), size_of_val(name)),
        }
    }
}

/// A received message: one datagram, or several of one flow.
pub(super) struct Message {
    /// Address of the sender.
    pub(super) from: IpAddr,
    /// Range of the message's bytes in the buffers.
    pub(super) bytes: Range<usize>,
    /// Length of each datagram; the last may be shorter.
    pub(super) size: usize,
}

/// Buffers for received messages.
///
/// `headers` points into the other boxes. All are on the heap and none is ever resized, so moving
/// this value keeps the pointers valid.
pub(super) struct Incoming {
    buffers: Box<[u8]>,
    names: Box<[libc::sockaddr_in6]>,
    merged: Box<[Merged]>,
    headers: Box<[libc::mmsghdr]>,
    /// The headers point to these.
    _vectors: Box<[libc::iovec]>,
}

// SAFETY: the raw pointers point to memory that this value owns.
unsafe impl Send for Incoming {}

impl Incoming {
    pub(super) fn new(count: usize) -> Self {
        // Pages that are never touched take no memory.
        let mut buffers = vec![0; count * STRIDE].into_boxed_slice();
        // SAFETY: all three consist of integers, for which zero is valid.
        let (name, note) = unsafe { (mem::zeroed(), mem::zeroed()) };
        let mut names: Box<[libc::sockaddr_in6]> = vec![name; count].into();
        let mut merged: Box<[Merged]> = vec![note; count].into();
        let vector = |buffer: &mut [u8]| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: MESSAGE_LEN,
        };
        let mut vectors: Box<[_]> = buffers.chunks_exact_mut(STRIDE).map(vector).collect();
        let parts = vectors.iter_mut().zip(&mut names).zip(&mut merged);
        let headers = parts.map(|((vector, name), merged)| {
            // SAFETY: an all-zero mmsghdr is a valid value: null pointers and zero lengths.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = ptr::from_mut(name).cast();
            header.msg_hdr.msg_control = ptr::from_mut(merged).cast();
            header
        });
        let headers = headers.collect();
        Self { buffers, names, merged, headers, _vectors: vectors }
    }

    /// Receives messages; returns how many. If `block`, waits for the first one.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, block: bool) -> io::Result<usize> {
        for header in &mut self.headers {
            // The kernel overwrites both with the lengths of what it stored.
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = size_of::<Merged>();
        }
        let flags = if block { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: every header points to a buffer of `MESSAGE_LEN` bytes, an address and a note of
        // this value, which is borrowed mutably for the duration of the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                flags,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Returns the message that the last [`receive`](Self::receive) stored at `index`, or `None` if
    /// it was longer than its buffer, or has no address.
    #[inline]
    pub(super) fn message(&self, index: usize) -> Option<Message> {
        let header = &self.headers[index];
        let len = header.msg_len as usize;
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 || len > MESSAGE_LEN {
            return None;
        }
        let name = &self.names[index];
        let from = match libc::c_int::from(name.sin6_family) {
            libc::AF_INET => {
                // SAFETY: the kernel stored an IPv4 address here, which is shorter and has the same
                // alignment, and consists of integers.
                let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
                IpAddr::from(name.sin_addr.s_addr.to_ne_bytes())
            }
            libc::AF_INET6 => IpAddr::from(name.sin6_addr.s6_addr),
            _ => return None,
        };
        let Merged { header: note, size, .. } = &self.merged[index];
        let is_merged = header.msg_hdr.msg_controllen >= MERGED_LEN
            && (note.cmsg_level, note.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO);
        let size = match usize::try_from(*size) {
            Ok(size) if is_merged && size > 0 => size,
            _ => len,
        };
        let start = index * STRIDE;
        Some(Message { from, bytes: start..start + len, size })
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffers
    }
}

/// A message to be sent.
#[derive(Clone)]
pub(super) struct Train {
    /// Range of the bytes of all its packets.
    pub(super) bytes: Range<usize>,
    /// Length of each datagram, of which the last may be shorter; 0: the message is one datagram.
    pub(super) size: u16,
    pub(super) to: Name,
}

/// Headers of messages to be sent.
pub(super) struct Outgoing {
    vectors: Box<[libc::iovec]>,
    cuts: Box<[Cut]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers point to memory that this value owns, or are set anew for each call.
unsafe impl Send for Outgoing {}

impl Outgoing {
    pub(super) fn new(count: usize) -> Self {
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: a header of a control message consists of integers.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = CUT_LEN;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        let cut = Cut { header, size: 0, padding: [0; 3] };
        let mut vectors: Box<[_]> = vec![vector; count].into();
        let mut cuts: Box<[_]> = vec![cut; count].into();
        let headers = vectors.iter_mut().zip(&mut cuts).map(|(vector, cut)| {
            // SAFETY: an all-zero mmsghdr is a valid value: null pointers and zero lengths.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = ptr::from_mut(cut).cast();
            header
        });
        let headers = headers.collect();
        Self { vectors, cuts, headers }
    }

    /// Sends the first of `trains`, whose bytes are in `bytes`: at most as many as there are
    /// headers. Returns how many were sent; the error is that of the first one.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        trains: &[Train],
        flags: SendFlags,
    ) -> io::Result<usize> {
        let count = trains.len().min(self.headers.len());
        let parts = self.headers.iter_mut().zip(&mut self.vectors).zip(&mut self.cuts);
        for (((header, vector), cut), train) in parts.zip(&trains[..count]) {
            let part = &bytes[train.bytes.clone()];
            *vector =
                libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
            let (name, len) = train.to.parts();
            header.msg_hdr.msg_name = name.cast_mut();
            header.msg_hdr.msg_namelen = len as libc::socklen_t;
            header.msg_hdr.msg_controllen = if train.size > 0 { size_of::<Cut>() } else { 0 };
            cut.size = train.size;
        }
        let flags = flags.bits().cast_signed();
        // SAFETY: each of the first `count` headers points to a part of `bytes`, to an address in
        // `trains` and to a note of this value, which the kernel only reads during the call.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count as u32, flags)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

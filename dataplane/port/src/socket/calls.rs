//! System calls that rustix does not offer.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use dray_wire::ethernet::TAG_TYPE;
use dray_wire::offload::VIRTIO_NET_LEN;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::frame::Part;

/// Entries of a batched call: messages of one buffer for a received frame, and of up to three for a
/// transmitted one: a header, and the frame's two parts.
///
/// `headers` points into `buffers` and `notes`. All are on the heap and none is ever resized, so
/// moving this value keeps the pointers valid.
pub(super) struct Messages {
    buffers: Box<[[libc::iovec; 3]]>,
    /// Auxiliary data of received frames; empty if none is requested.
    notes: Box<[Note]>,
    headers: Box<[libc::mmsghdr]>,
}

/// The one control message that a packet socket with `PACKET_AUXDATA` adds to a frame.
#[repr(C)]
#[derive(Clone, Copy)]
struct Note {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
    /// Padding up to `CMSG_SPACE`.
    padding: u32,
}
const _: () = assert!(size_of::<Note>() == 16 + 24 && align_of::<Note>() == 8);

/// The virtio-net header in front of a frame.
pub(super) type Head = [u8; VIRTIO_NET_LEN];

const NO_BYTES: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// A VLAN tag as in a frame: type, priority and VLAN.
pub(super) type Tag = [u8; 4];

// SAFETY: the raw pointers point to `buffers`, which this value owns, and to memory that the caller
// lends for the duration of one call.
unsafe impl Send for Messages {}

impl Messages {
    pub(super) fn new(count: usize) -> Self {
        let mut buffers = vec![[NO_BYTES; 3]; count].into_boxed_slice();
        let headers: Box<[_]> = buffers
            .iter_mut()
            .map(|buffer| {
                // SAFETY: an all-zero mmsghdr is a valid value: null pointers and zero lengths.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = buffer.as_mut_ptr();
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self { buffers, notes: Box::default(), headers }
    }

    /// Like [`new`](Self::new), for a packet socket that adds auxiliary data to each frame.
    pub(super) fn with_notes(count: usize) -> Self {
        let mut new = Self::new(count);
        // SAFETY: a note consists of integers, for which any bytes are valid.
        new.notes = vec![unsafe { mem::zeroed::<Note>() }; count].into_boxed_slice();
        for (header, note) in new.headers.iter_mut().zip(&mut new.notes) {
            header.msg_hdr.msg_control = ptr::from_mut(note).cast();
        }
        new
    }

    /// `sendmmsg` of frames in `parts`, each behind one of `heads` if there are some; sends at most
    /// as many as there are messages, and as there are heads.
    pub(super) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        heads: Option<&[Head]>,
        parts: impl Iterator<Item = [Part<'a>; 2]>,
        flags: SendFlags,
    ) -> io::Result<usize> {
        let mut count = 0;
        let most = heads.map_or(usize::MAX, <[Head]>::len);
        let messages = self.headers.iter_mut().zip(&mut self.buffers);
        for ((header, buffers), parts) in messages.zip(parts).take(most) {
            (*buffers, header.msg_hdr.msg_iovlen) =
                buffers_of(heads.map(|heads| &heads[count as usize]), parts);
            count += 1;
        }
        let (headers, flags) = (self.headers.as_mut_ptr(), flags.bits().cast_signed());
        // SAFETY: each of the first `count` headers points to a head, which is borrowed, or none,
        // and to two parts, which stay mapped for `'a` and so outlive the call; the kernel
        // only reads them.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers, count, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// `recvmmsg` into `slots`, or `recvmsg` for one message: slot `i` is `stride` bytes at `i *
    /// stride`, filled from `offset` on. Returns the number of messages received.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: &mut [u8],
        stride: usize,
        offset: usize,
        block: bool,
    ) -> io::Result<usize> {
        let count = self.buffers.len();
        for ([buffer, ..], slot) in self.buffers.iter_mut().zip(slots.chunks_exact_mut(stride)) {
            let part = &mut slot[offset..];
            buffer.iov_base = part.as_mut_ptr().cast();
            buffer.iov_len = part.len();
        }
        assert!(slots.len() / stride >= count, "a slot for every message");
        if !self.notes.is_empty() {
            // The kernel overwrites it with the length of the data that it added.
            let len = size_of::<Note>();
            self.headers.iter_mut().for_each(|header| header.msg_hdr.msg_controllen = len);
        }
        if let [header] = &mut *self.headers {
            let flags = if block { 0 } else { libc::MSG_DONTWAIT };
            // SAFETY: as below, for one message.
            let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header.msg_hdr, flags) };
            header.msg_len = u32::try_from(len).map_err(|_| io::Error::last_os_error())?;
            return Ok(1);
        }
        let flags = if block { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: every header points to one buffer inside `slots`, which is borrowed mutably for
        // the duration of the call, and to a note of `self` or none; the assertion above ensures
        // that all were set.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as u32,
                flags,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Sets the length of the first message, which was received by other means.
    pub(super) fn set_len(&mut self, len: usize) {
        self.headers[0].msg_len = len as u32;
    }

    /// Returns the length of the message that the last [`receive`](Self::receive) put at `index`,
    /// or `None` if it did not fit its slot.
    #[inline]
    pub(super) fn len(&self, index: usize) -> Option<usize> {
        let header = &self.headers[index];
        (header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0).then_some(header.msg_len as usize)
    }

    /// Returns the VLAN tag that the kernel stripped from the frame that the last
    /// [`receive`](Self::receive) put at `index`.
    #[inline]
    pub(super) fn tag(&self, index: usize) -> Option<Tag> {
        let Note { header, data, .. } = self.notes.get(index)?;
        // Otherwise the note belongs to an earlier frame.
        let is_there = self.headers[index].msg_hdr.msg_controllen >= NOTE_LEN
            && (header.cmsg_level, header.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA);
        if !is_there || data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let [a, b] = match data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => TAG_TYPE,
            _ => data.tp_vlan_tpid.to_be_bytes(),
        };
        let [c, d] = data.tp_vlan_tci.to_be_bytes();
        Some([a, b, c, d])
    }
}

/// `CMSG_LEN` of a note.
const NOTE_LEN: usize = size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>();

/// Returns the buffers of a frame in `parts`, behind `head` if there is one, and their number.
fn buffers_of(head: Option<&Head>, parts: [Part<'_>; 2]) -> ([libc::iovec; 3], usize) {
    let [first, second] = vectors(parts);
    let Some(head) = head else { return ([first, second, NO_BYTES], 2) };
    let head = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
    ([head, first, second], 3)
}

/// Converts the parts to the kernel's format; one of them may be empty.
pub(crate) fn vectors(parts: [Part<'_>; 2]) -> [libc::iovec; 2] {
    parts.map(|part| libc::iovec { iov_base: part.start.as_ptr().cast(), iov_len: part.len })
}

/// `sendmsg` of a frame in `parts`, behind `head` if there is one.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    head: Option<&Head>,
    parts: [Part<'_>; 2],
    flags: SendFlags,
) -> io::Result<()> {
    let (mut buffers, count) = buffers_of(head, parts);
    // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = buffers.as_mut_ptr();
    header.msg_iovlen = count;
    // SAFETY: the bytes stay mapped for longer than the call, and the kernel only reads them.
    let sent =
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags.bits().cast_signed()) };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Requests socket buffers of 4 MiB in both directions, beyond the system's limit if permitted.
pub(crate) fn enlarge_buffers(socket: BorrowedFd<'_>) -> io::Result<()> {
    const BYTES: libc::c_int = 4 << 20;
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(socket, libc::SOL_SOCKET, force, BYTES).is_err() {
            set_option(socket, libc::SOL_SOCKET, plain, BYTES)?;
        }
    }
    Ok(())
}

/// `setsockopt` with any plain value.
pub(crate) fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `getsockopt` of a plain value.
pub(crate) fn get_option<T: Copy + Default>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<T> {
    let mut value = T::default();
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `value`; every `T` used here consists of
    // integers, for which any bytes are valid.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_mut(&mut value).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Returns the number of frames that the kernel dropped because this socket's receive buffer was
/// full (`SO_MEMINFO`).
pub(crate) fn dropped(socket: BorrowedFd<'_>) -> io::Result<u64> {
    const SK_MEMINFO_DROPS: usize = 8;
    let info: [u32; SK_MEMINFO_DROPS + 1] = get_option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(info[SK_MEMINFO_DROPS].into())
}

/// Returns true if the error does not end the port: nothing to receive or no room at present, or
/// the peer's kernel reported that no socket listens.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let Some(errno) = Errno::from_io_error(error) else { return false };
    [Errno::AGAIN, Errno::INTR, Errno::NOBUFS, Errno::CONNREFUSED].contains(&errno)
}

/// Returns true if the error is the frame's, not the port's: the frame is too long or too short, or
/// its memory is gone. Any peer can send such a frame, and it must not end the port for all others.
pub(crate) fn is_of_frame(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::MSGSIZE, Errno::INVAL, Errno::FAULT].contains(&errno))
}

//! Packet rings (`PACKET_RX_RING` and `PACKET_TX_RING` of packet(7), version 2): frames pass in
//! slots of memory that kernel and port both map. The kernel fills slots without being asked, and
//! one `send` makes it take all that the port has filled.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dray_wire::ethernet::TAG_TYPE;
use dray_wire::offload::VIRTIO_NET_LEN;
use libc::{TP_STATUS_AVAILABLE, TP_STATUS_COPY, TP_STATUS_KERNEL, TP_STATUS_SEND_REQUEST};
use libc::{
    TP_STATUS_USER, TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID, TP_STATUS_WRONG_FORMAT,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::RecvFlags;

use super::calls::{self, Head, Tag};
use crate::frame::Frame;
use crate::{BATCH_MAX, PATIENCE};

/// Bytes of each of the two rings.
const RING_LEN: usize = 8 << 20;
/// Bytes of a block, the unit of the kernel's allocation.
const BLOCK_LEN: usize = 128 << 10;
/// Bytes that the kernel needs in a slot beside the frame: its header, the address that belongs to
/// it, a virtio-net header, and padding.
const OVERHEAD: usize = 128;
/// Offset of what is transmitted in its slot: `TPACKET2_HDRLEN` without its `sockaddr_ll`.
const TX_OFFSET: usize = size_of::<libc::tpacket2_hdr>();
const _: () = assert!(TX_OFFSET == 32);
/// Bytes at the start of a frame that the kernel copies, as `hdr_len` of the virtio-net header
/// tells it; it sends the rest from the slot. Some drivers (ipvlan) find no headers elsewhere.
const COPIED: usize = 256;

/// Offset of `hdr_len` in a virtio-net header.
const HDR_LEN: usize = 2;

/// Memory of both rings of a socket.
struct Pages {
    start: NonNull<libc::c_void>,
}

// SAFETY: pages are memory that the kernel shares with the owners of the rings in them.
unsafe impl Send for Pages {}
// SAFETY: as above; each ring is used by one thread.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by `open`, and the rings that point into them are gone.
        let _ = unsafe { munmap(self.start.as_ptr(), 2 * RING_LEN) };
    }
}

/// Slots in one direction.
struct Slots {
    pages: Arc<Pages>,
    /// Offset of the first slot in the pages.
    from: usize,
    /// Length of a slot, a power of two.
    len: usize,
    /// Number of the next slot to read or fill.
    next: usize,
}

/// Makes the rings of a packet socket for frames of up to `frame_max` bytes, with virtio-net
/// headers.
pub(crate) fn open(
    socket: BorrowedFd<'_>,
    frame_max: usize,
) -> io::Result<(ReceiveRing, TransmitRing)> {
    let packet =
        |name, value: libc::c_int| calls::set_option(socket, libc::SOL_PACKET, name, value);
    packet(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
    // Segments that do not fit a slot are left for `recv`.
    packet(libc::PACKET_COPY_THRESH, 1)?;
    let slot_len = (frame_max + OVERHEAD).next_power_of_two();
    let request = libc::tpacket_req {
        tp_block_size: BLOCK_LEN as u32,
        tp_block_nr: (RING_LEN / BLOCK_LEN) as u32,
        tp_frame_size: slot_len as u32,
        tp_frame_nr: (RING_LEN / slot_len) as u32,
    };
    for ring in [libc::PACKET_RX_RING, libc::PACKET_TX_RING] {
        calls::set_option(socket, libc::SOL_PACKET, ring, request)?;
    }
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let start = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        mmap(ptr::null_mut(), 2 * RING_LEN, access, MapFlags::SHARED, socket, 0)
    }?;
    let start = NonNull::new(start).expect("mmap gives an address or fails");
    let pages = Arc::new(Pages { start });
    let slots = |from| Slots { pages: pages.clone(), from, len: slot_len, next: 0 };
    let received = Box::new([const { Received { len: None, tag: None } }; BATCH_MAX]);
    let receive = ReceiveRing { slots: slots(0), received, dropped: AtomicU64::new(0) };
    Ok((receive, TransmitRing { slots: slots(RING_LEN), frame_max }))
}

impl Slots {
    /// Returns the start of the slot that is `ahead` of the next one.
    #[inline]
    fn slot(&self, ahead: usize) -> NonNull<u8> {
        let number = (self.next + ahead) % (RING_LEN / self.len);
        // SAFETY: the slot is inside the ring, and that inside the pages.
        unsafe { self.pages.start.cast::<u8>().add(self.from + number * self.len) }
    }

    /// Returns the word of a slot that says whose it is.
    #[inline]
    fn status(&self, ahead: usize) -> &AtomicU32 {
        // SAFETY: the slot is mapped as long as `self`, begins with its status, and is aligned.
        unsafe { self.slot(ahead).cast().as_ref() }
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.next = (self.next + count) % (RING_LEN / self.len);
    }
}

/// A frame by its slot.
struct Received {
    /// Length of the frame and its virtio-net header, if it fits.
    len: Option<usize>,
    tag: Option<Tag>,
}

/// Ring of received frames.
pub(crate) struct ReceiveRing {
    slots: Slots,
    /// The frames of the last [`receive`](Self::receive).
    received: Box<[Received; BATCH_MAX]>,
    /// Number of frames for which the ring had no slot: the kernel resets its own count when it is
    /// read.
    dropped: AtomicU64,
}

impl ReceiveRing {
    /// Copies up to `most` frames, each behind its virtio-net header, into `to`: frame `i` from
    /// `i * stride + offset` on. Waits for the first one if `block` is true. Returns their number.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        to: &mut [u8],
        (stride, offset): (usize, usize),
        most: usize,
        block: bool,
    ) -> io::Result<usize> {
        let is_there =
            |slots: &Slots| slots.status(0).load(Ordering::Acquire) & TP_STATUS_USER != 0;
        if block && !is_there(&self.slots) {
            let timeout = PATIENCE.try_into().expect("a few milliseconds");
            poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout))?;
        }
        let mut count = 0;
        for (room, received) in to.chunks_exact_mut(stride).take(most).zip(&mut *self.received) {
            if !is_there(&self.slots) {
                break;
            }
            *received = take(&self.slots, socket, &mut room[offset..]);
            self.slots.status(0).store(TP_STATUS_KERNEL, Ordering::Release);
            self.slots.advance(1);
            count += 1;
        }
        if count == 0 { Err(Errno::AGAIN.into()) } else { Ok(count) }
    }

    /// Returns the length of frame `index` and its virtio-net header; `None` if it did not fit.
    #[inline]
    pub(super) fn len(&self, index: usize) -> Option<usize> {
        self.received[index].len
    }

    /// Returns the VLAN tag that the kernel stripped from frame `index`.
    #[inline]
    pub(super) fn tag(&self, index: usize) -> Option<Tag> {
        self.received[index].tag
    }

    /// Returns true if a frame waits.
    pub(super) fn has_frame(&self) -> bool {
        self.slots.status(0).load(Ordering::Relaxed) & TP_STATUS_USER != 0
    }

    /// Returns the number of frames for which there was no slot.
    pub(super) fn dropped(&self, socket: BorrowedFd<'_>) -> io::Result<u64> {
        // `tp_packets` and `tp_drops` of tpacket_stats.
        let [_, drops]: [u32; 2] =
            calls::get_option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(self.dropped.fetch_add(drops.into(), Ordering::Relaxed) + u64::from(drops))
    }
}

/// Copies the frame in the next slot, which belongs to this side, to `room`.
fn take(slots: &Slots, socket: BorrowedFd<'_>, room: &mut [u8]) -> Received {
    let slot = slots.slot(0);
    // SAFETY: the kernel has written a header there, and leaves the slot alone.
    let header: libc::tpacket2_hdr = unsafe { slot.cast().read() };
    let tag = (header.tp_status & TP_STATUS_VLAN_VALID != 0).then(|| {
        let [a, b] = match header.tp_status & TP_STATUS_VLAN_TPID_VALID {
            0 => TAG_TYPE,
            _ => header.tp_vlan_tpid.to_be_bytes(),
        };
        let [c, d] = header.tp_vlan_tci.to_be_bytes();
        [a, b, c, d]
    });
    if header.tp_status & TP_STATUS_COPY != 0 {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let len = rustix::net::recv(socket, &mut *room, flags).ok().map(|(_, len)| len);
        return Received { len: len.filter(|len| *len <= room.len()), tag };
    }
    // The kernel puts the virtio-net header right before the frame.
    let start = usize::from(header.tp_mac).checked_sub(VIRTIO_NET_LEN);
    let len = header.tp_snaplen as usize + VIRTIO_NET_LEN;
    let is_whole = header.tp_snaplen == header.tp_len && len <= room.len();
    let Some(start) = start.filter(|start| is_whole && start + len <= slots.len) else {
        return Received { len: None, tag };
    };
    // SAFETY: both are as long as that, and the ring is no memory of the caller's.
    unsafe { ptr::copy_nonoverlapping(slot.add(start).as_ptr(), room.as_mut_ptr(), len) };
    Received { len: Some(len), tag }
}

/// Ring of frames to transmit.
pub(crate) struct TransmitRing {
    slots: Slots,
    frame_max: usize,
}

impl TransmitRing {
    /// Passes as many frames to the kernel as it takes, each behind its virtio-net header; returns
    /// their number, which is not 0.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        heads: &[Head],
        frames: &[Frame<'_>],
    ) -> io::Result<usize> {
        let mut filled = 0;
        for (head, frame) in heads.iter().zip(frames) {
            let status = self.slots.status(filled);
            if status.load(Ordering::Acquire) != TP_STATUS_AVAILABLE {
                break;
            }
            // With virtio-net headers, the kernel does not compare lengths with the MTU here.
            if !frame.fits(self.frame_max) {
                if filled == 0 {
                    return Err(Errno::MSGSIZE.into());
                }
                break;
            }
            self.fill(filled, head, frame);
            status.store(TP_STATUS_SEND_REQUEST, Ordering::Release);
            filled += 1;
        }
        if filled == 0 {
            return Err(Errno::AGAIN.into());
        }
        // The kernel waits for the end of transmission unless it is told not to.
        // SAFETY: no memory is passed.
        let sent = unsafe { libc::send(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT) };
        let error = (sent < 0).then(io::Error::last_os_error);
        // The kernel takes slots in order, and only during the call: the others are free again.
        let is_left = |&ahead: &usize| {
            let status = self.slots.status(ahead).load(Ordering::Acquire);
            status & (TP_STATUS_SEND_REQUEST | TP_STATUS_WRONG_FORMAT) != 0
        };
        let taken = (0..filled).find(is_left).unwrap_or(filled);
        for ahead in taken..filled {
            self.slots.status(ahead).store(TP_STATUS_AVAILABLE, Ordering::Release);
        }
        self.slots.advance(taken);
        match taken {
            0 => Err(error.unwrap_or_else(|| Errno::AGAIN.into())),
            taken => Ok(taken),
        }
    }

    /// Writes a frame, which [fits](Frame::fits), and its header.
    fn fill(&self, ahead: usize, head: &Head, frame: &Frame<'_>) {
        let slot = self.slots.slot(ahead);
        let len = head.len() + frame.len();
        assert!(TX_OFFSET + len <= self.slots.len, "a slot has room for a frame that fits");
        // SAFETY: header and frame fit the slot, which belongs to this side until its status says
        // otherwise.
        unsafe {
            (*slot.cast::<libc::tpacket2_hdr>().as_ptr()).tp_len = len as u32;
            let at = slot.add(TX_OFFSET);
            ptr::copy_nonoverlapping(head.as_ptr(), at.as_ptr(), head.len());
            let copied = (frame.len().min(COPIED) as u16).to_ne_bytes();
            ptr::copy_nonoverlapping(copied.as_ptr(), at.add(HDR_LEN).as_ptr(), copied.len());
            frame.copy_to(at.add(head.len()));
        }
    }
}

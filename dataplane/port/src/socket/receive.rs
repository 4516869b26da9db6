//! The receiving half of a socket port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dray_wire::ethernet::TAG_LEN;
use dray_wire::flow::{self, Flow, HEADERS_LEN};
use dray_wire::offload::{self, Offload, Offloads, Tunnel, VIRTIO_NET_LEN};
use rustix::net::RecvFlags;

use super::SocketOptions;
use super::calls::{self, Messages, Tag, is_of_frame, is_transient};
use super::cutter::{Cutter, ROOM_LEN};
use super::ring::ReceiveRing;
use super::slots::{LINE, LONG_SLOT_LEN, SLOT_LEN};
use super::zerocopy::Unfinished;
use crate::frame::received::{Filled, ReceivedFrames};
use crate::frame::{ADDRESSES_LEN, OFFLOADED_LIMIT};
use crate::total::Total;
use crate::wait::PollPause;
use crate::{FRAME_LIMIT, Receive, Take, Wait, vnet};

/// The part of frames that the kernel removes on a socket, and the port restores.
#[derive(Clone, Copy)]
pub(crate) enum Restore {
    /// Nothing is removed.
    Nothing,
    /// All headers of a UDP socket's frames, which are those of this flow.
    Headers(Flow),
    /// VLAN tags: a packet socket reports them in auxiliary data.
    Tags,
}

/// How the slots are filled.
enum Fill {
    /// With frames.
    Frames,
    /// With payloads, behind headers that are written here.
    Payloads {
        flow: Flow,
        /// The frame length for which each slot's headers were last written.
        written: Box<[usize]>,
    },
    /// With frames without their tag. There is room in front: the addresses are moved there to
    /// restore it.
    Untagged,
}

impl Fill {
    /// Returns the offset in their slot of the kernel's bytes behind a virtio-net header.
    const fn offset(&self, has_header: bool) -> usize {
        match self {
            Self::Frames if !has_header => 0,
            Self::Payloads { .. } => HEADERS_LEN,
            // A frame without a tag begins on a cache line.
            Self::Frames | Self::Untagged => LINE,
        }
    }
}

pub(crate) struct SocketReceive {
    socket: Arc<OwnedFd>,
    drops: Total,
    slots: Box<[u8]>,
    /// Length of a slot.
    stride: usize,
    /// Offloads that the kernel may leave to the port; `None` if frames have no virtio-net header.
    offloads: Option<Offloads>,
    /// Cuts packets whose offloads are not left to the reader, if frames have a header. The room
    /// for segments is behind the slots.
    cutter: Option<Cutter>,
    messages: Messages,
    /// The ring by which frames pass, if there is one.
    ring: Option<ReceiveRing>,
    /// Messages of the transmitting half that the kernel reads, if it copies none.
    unfinished: Option<Arc<Unfinished>>,
    fill: Fill,
    batch: usize,
    wait: Wait,
    pause: PollPause,
    /// True if no system call is made.
    is_draining: bool,
    /// Number of messages in the slots, and number of those that were read.
    count: usize,
    read: usize,
    filled: ReceivedFrames,
    /// Frames that were too long or malformed.
    refused: u64,
}

impl SocketReceive {
    pub(crate) fn new(socket: Arc<OwnedFd>, options: SocketOptions, restore: Restore) -> Self {
        let batch = options.batch;
        let (messages, fill) = match restore {
            Restore::Nothing => (Messages::new(batch), Fill::Frames),
            Restore::Headers(flow) => {
                (Messages::new(batch), Fill::Payloads { flow, written: vec![0; batch].into() })
            }
            Restore::Tags => (Messages::with_notes(batch), Fill::Untagged),
        };
        let drops = Total::new(&calls::dropped(socket.as_fd()), u32::MAX.into());
        Self {
            socket,
            drops,
            slots: vec![0; batch * SLOT_LEN].into_boxed_slice(),
            stride: SLOT_LEN,
            offloads: None,
            cutter: None,
            messages,
            ring: None,
            unfinished: None,
            fill,
            batch,
            wait: options.wait,
            pause: PollPause::default(),
            is_draining: false,
            count: 0,
            read: 0,
            filled: ReceivedFrames::default(),
            refused: 0,
        }
    }

    /// For a packet socket that puts a virtio-net header in front of each frame. The port passes
    /// the kernel's offloads on to the reader; with `finish`, it completes such frames instead.
    pub(crate) fn with_offloads(self, offloads: Offloads, finish: bool) -> Self {
        // Pages that no frame reaches take no memory.
        let slots = vec![0; self.batch * LONG_SLOT_LEN + ROOM_LEN].into_boxed_slice();
        let cutter = Some(Cutter::new(finish));
        Self { slots, stride: LONG_SLOT_LEN, offloads: Some(offloads), cutter, ..self }
    }

    /// For a packet socket [with virtio-net headers](Self::with_offloads) that has a ring.
    pub(crate) fn with_ring(mut self, ring: ReceiveRing) -> Self {
        let drops = ring.dropped(self.socket.as_fd());
        (self.drops, self.ring) = (Total::new(&drops, u64::MAX), Some(ring));
        self
    }

    /// For a UDP socket whose sent payloads the kernel does not copy.
    pub(crate) fn with_zerocopy(self, unfinished: Arc<Unfinished>) -> Self {
        Self { unfinished: Some(unfinished), ..self }
    }

    /// Returns the offset of the kernel's bytes in their slot.
    fn offset(&self) -> usize {
        let header = if self.offloads.is_some() { VIRTIO_NET_LEN } else { 0 };
        self.fill.offset(header > 0) - header
    }

    /// Makes one `recv`, `recvmsg` or `recvmmsg` call, or reads the ring; returns the number of
    /// messages in the slots.
    fn call(&mut self) -> io::Result<usize> {
        let offset = self.offset();
        let block = self.wait == Wait::Block;
        if let Some(ring) = &mut self.ring {
            let places = (self.stride, offset);
            return ring.receive(self.socket.as_fd(), &mut self.slots, places, self.batch, block);
        }
        if self.batch > 1 || matches!(self.fill, Fill::Untagged) {
            let (slots, stride) = (&mut self.slots, self.stride);
            return self.messages.receive(self.socket.as_fd(), slots, stride, offset, block);
        }
        let flags = if block { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let slot = &mut self.slots[offset..];
        let (_, len) = rustix::net::recv(&self.socket, slot, flags | RecvFlags::TRUNC)?;
        self.messages.set_len(len);
        Ok(1)
    }
}

impl Receive for SocketReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        if self.filled.is_empty() {
            self.fill()?;
        }
        Ok(self.filled.lend(&self.slots, take))
    }

    fn missed(&self) -> io::Result<u64> {
        let socket = self.socket.as_fd();
        let dropped = match &self.ring {
            Some(ring) => ring.dropped(socket),
            None => calls::dropped(socket),
        };
        Ok(self.drops.at(&dropped))
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn drain(&mut self, on: bool) -> bool {
        self.is_draining = on;
        self.arm(on)
    }

    fn arm(&mut self, _: bool) -> bool {
        if let Some(unfinished) = &self.unfinished {
            // The descriptor signals its error queue, too.
            unfinished.free();
        }
        // The descriptor does not signal frames that were received but not taken yet.
        !self.filled.is_empty()
            || self.has_rest()
            || self.ring.as_ref().is_some_and(ReceiveRing::has_frame)
    }

    fn devices(&self) -> Vec<BorrowedFd<'_>> {
        // Another process cannot find the place in a ring at which the kernel is.
        if self.ring.is_some() { Vec::new() } else { vec![self.socket.as_fd()] }
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}

impl SocketReceive {
    /// Finds the next frames in the slots; receives messages if no frame is left there.
    fn fill(&mut self) -> io::Result<()> {
        self.filled.clear();
        if let Some(cutter) = &mut self.cutter {
            cutter.clear();
        }
        if !self.has_rest() {
            self.receive_messages()?;
        }
        loop {
            if let Some(cutter) = &mut self.cutter
                && cutter.is_busy()
            {
                let is_cut = cutter.cut(&mut self.slots, &mut self.filled);
                self.refused += u64::from(!is_cut);
                if cutter.is_busy() {
                    return Ok(());
                }
            }
            if self.read == self.count || self.filled.is_full() {
                return Ok(());
            }
            let Some((frame, tunnel)) = self.message(self.read) else {
                (self.refused, self.read) = (self.refused + 1, self.read + 1);
                continue;
            };
            self.read += 1;
            match &mut self.cutter {
                Some(cutter)
                    if frame.offload != Offload::None && (cutter.cuts_all || tunnel.is_some()) =>
                {
                    cutter.begin(frame, tunnel);
                }
                _ => self.filled.push(frame),
            }
        }
    }

    /// Returns true if the slots contain messages that were not turned into frames yet.
    #[inline]
    fn has_rest(&self) -> bool {
        self.read < self.count || self.cutter.as_ref().is_some_and(Cutter::is_busy)
    }

    /// Receives into the slots, all of which are free.
    fn receive_messages(&mut self) -> io::Result<()> {
        (self.count, self.read) = (0, 0);
        if self.is_draining || self.pause.is_active(self.wait) {
            return Ok(());
        }
        self.count = match self.call() {
            Ok(count) => count,
            Err(error) if is_transient(&error) => 0,
            // The kernel has dropped a packet that the header cannot describe.
            Err(error) if self.offloads.is_some() && is_of_frame(&error) => {
                self.refused += 1;
                0
            }
            Err(error) => return Err(error),
        };
        if self.count <= self.batch / 2 {
            self.pause.start(self.wait);
        }
        Ok(())
    }

    /// Returns the frame of message `index`, and the tunnel in which it has an offload; `None` if
    /// it cannot be forwarded.
    #[inline]
    fn message(&mut self, index: usize) -> Option<(Filled, Option<Tunnel>)> {
        let (at, offset) = (self.offset(), self.fill.offset(self.offloads.is_some()));
        let mut len = match &self.ring {
            Some(ring) => ring.len(index)?,
            None => self.messages.len(index)?,
        };
        let slot = &mut self.slots[index * self.stride..][..self.stride];
        let (mut offload, mut tunnel) = (Offload::None, None);
        if let Some(offloads) = self.offloads {
            (len, offload) = match vnet::check(&mut slot[at..], len, offloads) {
                Some(checked) => checked,
                None => {
                    let (found, offload) = vnet::tunnel(&slot[at..], len)?;
                    tunnel = Some(found);
                    (len - VIRTIO_NET_LEN, offload)
                }
            };
            if offload == Offload::Checksum
                && self.cutter.as_ref().is_some_and(|cutter| cutter.cuts_all)
            {
                offload::finish(&mut slot[offset..offset + len])?;
                offload = Offload::None;
            }
        }
        let mut start = offset;
        match &mut self.fill {
            Fill::Frames => {}
            Fill::Payloads { flow, written } => {
                (start, len) = (0, offset + len);
                if len <= FRAME_LIMIT && written[index] != len {
                    let headers = slot.first_chunk_mut().expect("a slot holds the headers");
                    flow::write(flow, len, headers);
                    written[index] = len;
                }
            }
            Fill::Untagged => {
                let tag = match &self.ring {
                    Some(ring) => ring.tag(index),
                    None => self.messages.tag(index),
                };
                if let Some(tag) = tag {
                    (start, len) = (offset - TAG_LEN, len + TAG_LEN);
                    put_tag(&mut slot[start..], tag);
                    tunnel = tunnel.map(|tunnel| tunnel.moved(TAG_LEN));
                }
            }
        }
        let limit = if offload == Offload::None { FRAME_LIMIT } else { OFFLOADED_LIMIT };
        let start = index * self.stride + start;
        (len <= limit).then_some((Filled { start, len, offload }, tunnel))
    }
}

/// Inserts a VLAN tag: moves the frame's addresses by [`TAG_LEN`] bytes to the start of `room`, and
/// writes `tag` behind them.
#[cold]
fn put_tag(room: &mut [u8], tag: Tag) {
    room.copy_within(TAG_LEN..TAG_LEN + ADDRESSES_LEN, 0);
    room[ADDRESSES_LEN..ADDRESSES_LEN + TAG_LEN].copy_from_slice(&tag);
}

//! The transmitting half of a socket port.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use dray_wire::offload::Offloads;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::SocketOptions;
use super::calls::{self, Head, Messages, is_of_frame, is_transient};
use super::ring::TransmitRing;
use super::zerocopy::{Unfinished, ZeroCopy};
use crate::frame::{Frame, Part};
use crate::lost::{Loss, Lost};
use crate::{BATCH_MAX, Transmit, vnet};

pub(crate) struct SocketTransmit {
    socket: Arc<OwnedFd>,
    messages: Messages,
    /// The ring by which frames pass, if there is one.
    ring: Option<TransmitRing>,
    /// Payloads that the kernel does not copy, if it copies none.
    zerocopy: Option<ZeroCopy>,
    batch: usize,
    /// True if the socket takes UDP payloads: the kernel writes all headers itself.
    payload_only: bool,
    frame_max: usize,
    /// Offloads that the kernel takes; `None` if frames have no virtio-net header.
    offloads: Option<Offloads>,
    /// Headers of the frames of a call.
    heads: ArrayVec<Head, BATCH_MAX>,
    /// `DONTWAIT` if a full peer must not hold up the caller.
    flags: SendFlags,
    lost: Lost,
}

impl SocketTransmit {
    /// `payload_only`: the socket takes UDP payloads, not frames. `frame_max` is in bytes.
    pub(crate) fn new(
        socket: Arc<OwnedFd>,
        options: SocketOptions,
        payload_only: bool,
        frame_max: usize,
    ) -> Self {
        Self {
            socket,
            messages: Messages::new(options.batch),
            ring: None,
            zerocopy: None,
            batch: options.batch,
            payload_only,
            frame_max,
            offloads: None,
            heads: ArrayVec::new(),
            flags: SendFlags::empty(),
            lost: Lost::new(),
        }
    }

    /// For a packet socket that expects a virtio-net header in front of each frame.
    pub(crate) fn with_offloads(self, offloads: Offloads) -> Self {
        Self { offloads: Some(offloads), ..self }
    }

    /// For a packet socket [with virtio-net headers](Self::with_offloads) that has a ring.
    pub(crate) fn with_ring(self, ring: TransmitRing) -> Self {
        Self { ring: Some(ring), ..self }
    }

    /// For a UDP socket whose payloads the kernel does not copy.
    pub(crate) fn with_zerocopy(self, unfinished: Arc<Unfinished>) -> Self {
        Self { zerocopy: Some(ZeroCopy::new(unfinished)), ..self }
    }

    /// Makes one `send` or `sendmmsg` call; returns how many of `frames` the kernel took.
    fn call(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        if let Some(zerocopy) = &mut self.zerocopy {
            return zerocopy.send(&mut self.messages, frames, self.batch, self.flags);
        }
        if self.batch > 1 || self.ring.is_some() {
            let heads = match self.offloads {
                None => None,
                Some(offloads) => {
                    let head = |frame| vnet::header(frame, offloads, self.frame_max);
                    self.heads.clear();
                    self.heads.extend(frames.iter().take(self.batch).map_while(head));
                    if self.heads.is_empty() {
                        return Err(Errno::MSGSIZE.into());
                    }
                    Some(&*self.heads)
                }
            };
            if let (Some(ring), Some(heads)) = (&mut self.ring, heads) {
                return ring.send(self.socket.as_fd(), heads, frames);
            }
            let payload_only = self.payload_only;
            let parts = frames.iter().map(|frame| parts(frame, payload_only));
            return self.messages.send(self.socket.as_fd(), heads, parts, self.flags);
        }
        let head = match self.offloads {
            None => None,
            Some(offloads) => {
                let head = vnet::header(&frames[0], offloads, self.frame_max);
                Some(head.ok_or(Errno::MSGSIZE)?)
            }
        };
        let parts = parts(&frames[0], self.payload_only);
        calls::send(self.socket.as_fd(), head.as_ref(), parts, self.flags)?;
        Ok(1)
    }
}

impl Transmit for SocketTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.lost.begin();
        let mut sent = 0;
        while sent < frames.len() {
            match self.call(&frames[sent..]) {
                Ok(count) => sent += count,
                Err(error) if is_transient(&error) => break,
                Err(error) if is_of_frame(&error) => {
                    self.lost.add(sent, Loss::Undeliverable);
                    sent += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn never_wait(&mut self) {
        self.flags = SendFlags::DONTWAIT;
    }

    fn lost(&self) -> &Lost {
        &self.lost
    }

    fn accepts(&self, frame: &Frame<'_>) -> bool {
        vnet::accepts(frame, self.offloads, self.frame_max)
            && (!self.payload_only || frame.udp_payload().is_some())
    }

    fn offloads(&self) -> Offloads {
        self.offloads.unwrap_or(Offloads::NONE)
    }
}

/// Returns the part of a frame that goes into the socket: nothing of a frame that the port does not
/// accept.
#[inline]
fn parts<'f>(frame: &Frame<'f>, payload_only: bool) -> [Part<'f>; 2] {
    let range = match payload_only {
        true => frame.udp_payload().unwrap_or_default(),
        false => 0..frame.len(),
    };
    frame.parts(range)
}

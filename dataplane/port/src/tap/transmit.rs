//! The transmitting half of a TAP port.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use dray_wire::ethernet::{ETHERNET_LEN, TAG_LEN};
use dray_wire::offload::{HEADERS_MAX, Layout, Offload, Offloads, VIRTIO_NET_LEN, VirtioNet};
use rustix::io::Errno;

use super::calls;
use crate::socket::is_of_frame;
use crate::{Frame, Transmit};

pub(super) struct TapTransmit {
    device: Arc<File>,
    frame_max: usize,
    /// Offloads that the kernel takes; `None` if frames have no virtio-net header.
    offloads: Option<Offloads>,
    dropped: u64,
}

impl TapTransmit {
    pub(super) fn new(device: Arc<File>, frame_max: usize, offloads: Option<Offloads>) -> Self {
        Self { device, frame_max, offloads, dropped: 0 }
    }

    /// Returns the header of a frame; `None` if the kernel cannot do what is left to do on it.
    fn header(&self, frame: &Frame<'_>) -> Option<[u8; VIRTIO_NET_LEN]> {
        let offload = frame.offload();
        if offload == Offload::None {
            return Some([0; VIRTIO_NET_LEN]);
        }
        let mut head = [0; HEADERS_MAX];
        let len = frame.copy_from(0, &mut head);
        let layout = Layout::of(&head[..len], frame.len())?;
        let longest = offload.segment().map_or(0, |len| layout.payload + usize::from(len.get()));
        let is_carried = self.offloads?.handle(offload, &layout);
        (is_carried && longest <= self.frame_max + TAG_LEN)
            .then(|| VirtioNet::of(offload, &layout, frame.len()))?
            .map(|header| header.bytes())
    }

    fn write(&self, frame: &Frame<'_>) -> io::Result<()> {
        let parts = frame.parts(0..frame.len());
        if self.offloads.is_none() {
            return calls::write(self.device.as_fd(), &[], parts);
        }
        let header = self.header(frame).ok_or(Errno::MSGSIZE)?;
        calls::write(self.device.as_fd(), &header, parts)
    }
}

impl Transmit for TapTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        for (sent, frame) in frames.iter().enumerate() {
            if !self.accepts(frame) {
                self.dropped += 1;
                continue;
            }
            match self.write(frame) {
                Ok(()) => {}
                Err(error) if is_of_frame(&error) => self.dropped += 1,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => return Ok(sent),
                    _ => return Err(error),
                },
            }
        }
        Ok(frames.len())
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }

    fn accepts(&self, frame: &Frame<'_>) -> bool {
        let is_short = match frame.offload().segment() {
            // The length of its segments is checked when their headers are read.
            Some(_) => self.offloads.is_some(),
            None => frame.fits(self.frame_max) && (self.offloads.is_some() || !frame.has_offload()),
        };
        frame.len() >= ETHERNET_LEN && is_short
    }

    fn offloads(&self) -> Offloads {
        self.offloads.unwrap_or(Offloads::NONE)
    }
}

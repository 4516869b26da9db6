//! The transmitting half of a TAP port.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use dray_wire::offload::Offloads;
use rustix::io::Errno;

use super::calls;
use crate::lost::{Loss, Lost};
use crate::socket::is_of_frame;
use crate::{Frame, Transmit, vnet};

pub(super) struct TapTransmit {
    device: Arc<File>,
    frame_max: usize,
    /// Offloads that the kernel takes; `None` if frames have no virtio-net header.
    offloads: Option<Offloads>,
    lost: Lost,
}

impl TapTransmit {
    pub(super) fn new(device: Arc<File>, frame_max: usize, offloads: Option<Offloads>) -> Self {
        Self { device, frame_max, offloads, lost: Lost::new() }
    }

    fn write(&self, frame: &Frame<'_>) -> io::Result<()> {
        let parts = frame.parts(0..frame.len());
        let Some(offloads) = self.offloads else {
            return calls::write(self.device.as_fd(), &[], parts);
        };
        let header = vnet::header(frame, offloads, self.frame_max).ok_or(Errno::MSGSIZE)?;
        calls::write(self.device.as_fd(), &header, parts)
    }
}

impl Transmit for TapTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.lost.begin();
        for (sent, frame) in frames.iter().enumerate() {
            if !self.accepts(frame) {
                self.lost.add(sent, Loss::Undeliverable);
                continue;
            }
            match self.write(frame) {
                Ok(()) => {}
                Err(error) if is_of_frame(&error) => self.lost.add(sent, Loss::Undeliverable),
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

    fn lost(&self) -> &Lost {
        &self.lost
    }

    fn accepts(&self, frame: &Frame<'_>) -> bool {
        vnet::accepts(frame, self.offloads, self.frame_max)
    }

    fn offloads(&self) -> Offloads {
        self.offloads.unwrap_or(Offloads::NONE)
    }
}

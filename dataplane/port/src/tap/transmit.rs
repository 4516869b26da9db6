//! The transmitting half of a TAP port.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use dray_wire::ethernet::ETHERNET_LEN;
use rustix::io::Errno;

use super::calls;
use crate::socket::is_of_frame;
use crate::{Frame, Transmit};

pub(super) struct TapTransmit {
    device: Arc<File>,
    frame_max: usize,
    dropped: u64,
}

impl TapTransmit {
    pub(super) fn new(device: Arc<File>, frame_max: usize) -> Self {
        Self { device, frame_max, dropped: 0 }
    }
}

impl Transmit for TapTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        for (sent, frame) in frames.iter().enumerate() {
            if !self.accepts(frame) {
                self.dropped += 1;
                continue;
            }
            match calls::write(self.device.as_fd(), frame.parts(0..frame.len())) {
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
        frame.len() >= ETHERNET_LEN && frame.fits(self.frame_max)
    }
}

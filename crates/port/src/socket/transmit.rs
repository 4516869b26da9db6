//! The transmitting half of a socket port.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dray_wire::headers;

use super::SocketOptions;
use super::calls::{self, Messages};
use super::receive::is_transient;
use crate::Transmit;
use crate::frame::{Frame, Part};

pub(crate) struct SocketTransmit {
    socket: Arc<OwnedFd>,
    messages: Messages,
    batch: usize,
    /// The socket takes UDP payloads: the kernel writes all headers itself.
    payload_only: bool,
    frame_max: usize,
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
            batch: options.batch,
            payload_only,
            frame_max,
        }
    }

    /// One `send` or `sendmmsg`: how many of `frames` the kernel took.
    fn call(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        if self.batch > 1 {
            let payload_only = self.payload_only;
            let parts = frames.iter().map(|frame| parts(frame, payload_only));
            return self.messages.send(self.socket.as_fd(), parts);
        }
        calls::send(self.socket.as_fd(), parts(&frames[0], self.payload_only))?;
        Ok(1)
    }
}

impl Transmit for SocketTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < frames.len() {
            match self.call(&frames[sent..]) {
                Ok(count) => sent += count,
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn accepts(&self, frame: &Frame<'_>) -> bool {
        frame.len() <= self.frame_max && (!self.payload_only || udp_part(frame).is_some())
    }
}

/// What of a frame goes into the socket. Of a frame that the port does not accept: nothing.
#[inline]
fn parts<'f>(frame: &Frame<'f>, payload_only: bool) -> [Part<'f>; 2] {
    let range = match payload_only {
        true => udp_part(frame).unwrap_or_default(),
        false => 0..frame.len(),
    };
    frame.parts(range)
}

/// Where an IPv4/UDP frame's payload lies, by the headers as they are now.
#[inline]
fn udp_part(frame: &Frame<'_>) -> Option<Range<usize>> {
    headers::udp_payload_range(&frame.first()?, frame.len())
}

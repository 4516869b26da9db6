//! The transmitting half of a socket port.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dray_wire::headers::udp_payload;
use rustix::net::SendFlags;

use super::SocketOptions;
use super::calls::Messages;
use super::receive::is_transient;
use crate::Transmit;

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
    fn call(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
        if self.batch > 1 {
            let parts = frames.iter().map(|frame| part(frame, self.payload_only));
            return self.messages.send(self.socket.as_fd(), parts);
        }
        let part = part(frames[0], self.payload_only);
        rustix::net::send(&self.socket, part, SendFlags::empty())?;
        Ok(1)
    }
}

impl Transmit for SocketTransmit {
    fn transmit(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
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

    fn accepts(&self, frame: &[u8]) -> bool {
        frame.len() <= self.frame_max && (!self.payload_only || udp_payload(frame).is_some())
    }
}

/// What of a frame goes into the socket. Of a frame that the port does not accept: nothing.
#[inline]
fn part(frame: &[u8], payload_only: bool) -> &[u8] {
    if payload_only { udp_payload(frame).unwrap_or_default() } else { frame }
}

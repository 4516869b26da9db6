//! The transmitting half of a socket port.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dray_wire::HEADERS_LEN;
use rustix::net::SendFlags;

use super::SocketOptions;
use super::calls::Messages;
use super::receive::is_transient;
use crate::Transmit;

pub(crate) struct SocketTransmit {
    socket: Arc<OwnedFd>,
    messages: Messages,
    batch: usize,
    /// How much of a frame's front the kernel writes itself: all headers for UDP, none for raw.
    skip: usize,
    frame_max: usize,
}

impl SocketTransmit {
    /// `strip_headers`: the socket takes the UDP payload only. `frame_max` is in bytes.
    pub(crate) fn new(
        socket: Arc<OwnedFd>,
        options: SocketOptions,
        strip_headers: bool,
        frame_max: usize,
    ) -> Self {
        Self {
            socket,
            messages: Messages::new(options.batch),
            batch: options.batch,
            skip: if strip_headers { HEADERS_LEN } else { 0 },
            frame_max,
        }
    }

    /// One `send` or `sendmmsg`: how many of `frames` the kernel took.
    fn call(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
        if self.batch > 1 {
            return self.messages.send(self.socket.as_fd(), frames, self.skip);
        }
        rustix::net::send(&self.socket, &frames[0][self.skip..], SendFlags::empty())?;
        Ok(1)
    }
}

impl Transmit for SocketTransmit {
    fn transmit(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
        debug_assert!(frames.iter().all(|frame| frame.len() >= self.skip));
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
}

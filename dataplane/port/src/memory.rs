//! A port in memory, whose peer is the holder of the other end: for tests, fuzzers and benchmarks
//! of the code between ports.
//!
//! ```
//! use dray_port::memory::Peer;
//! use dray_port::{Frame, Port};
//!
//! # fn main() -> std::io::Result<()> {
//! let peer = Peer::default();
//! let Port { mut rx, mut tx, .. } = peer.port();
//! peer.send([vec![1; 64], vec![2; 64]]);
//! // Takes the first frame only: the second one stays queued.
//! let lent = rx[0].receive(&mut |frames| tx[0].transmit(&frames[..1]).unwrap_or(0))?;
//! assert_eq!((lent, peer.received()), (2, vec![vec![1; 64]]));
//! let left = rx[0].receive(&mut |frames| frames.len())?;
//! assert_eq!(left, 1);
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::{BATCH_MAX, Batch, Frame, Port, Receive, Scratch, Take, Transmit, scratch};

/// Length of the longest frame: that of an MTU of 1500 bytes.
const LEN_MAX: usize = 1514;

type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// The peer's end of a port in memory.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    to_port: Frames,
    from_port: Frames,
}

impl Peer {
    /// Creates the port of this peer.
    pub fn port(&self) -> Port {
        let receiver = Receiver { frames: self.to_port.clone(), lent: Vec::new() };
        let transmitter = Transmitter { frames: self.from_port.clone(), scratch: scratch() };
        Port { rx: vec![Box::new(receiver)], tx: vec![Box::new(transmitter)], link: None }
    }

    /// Makes `frames` available to the port to receive.
    pub fn send(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        lock(&self.to_port).extend(frames);
    }

    /// Returns the frames that the port has transmitted since the last call.
    pub fn received(&self) -> Vec<Vec<u8>> {
        lock(&self.from_port).drain(..).collect()
    }
}

struct Receiver {
    frames: Frames,
    lent: Vec<Vec<u8>>,
}

impl Receive for Receiver {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        {
            let mut frames = lock(&self.frames);
            let count = frames.len().min(BATCH_MAX);
            self.lent.clear();
            self.lent.extend(frames.drain(..count));
        }
        let batch: Batch<'_> = self.lent.iter().map(|frame| Frame::from(&frame[..])).collect();
        if batch.is_empty() {
            return Ok(0);
        }
        let lent = batch.len();
        let taken = take(&batch).min(lent);
        drop(batch);
        let mut frames = lock(&self.frames);
        self.lent.drain(taken..).rev().for_each(|frame| frames.push_front(frame));
        Ok(lent)
    }
}

struct Transmitter {
    frames: Frames,
    scratch: Scratch,
}

impl Transmit for Transmitter {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let mut sent = lock(&self.frames);
        sent.extend(frames.iter().map(|frame| frame.bytes(&mut self.scratch).to_vec()));
        Ok(frames.len())
    }

    fn frame_max(&self) -> usize {
        LEN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_pass_both_ways_and_untaken_stay() {
        let peer = Peer::default();
        let Port { mut rx, mut tx, .. } = peer.port();
        peer.send([vec![1], vec![2], vec![3]]);
        let mut seen = Vec::new();
        for taken in [1, 2] {
            let lent = rx[0].receive(&mut |frames| {
                seen.extend(frames.iter().take(taken).map(|frame| frame.first::<1>().unwrap()[0]));
                taken
            });
            assert!(lent.unwrap() > 0);
        }
        assert_eq!(seen, [1, 2, 3]);
        assert_eq!(rx[0].receive(&mut |_| panic!("nothing is lent")).unwrap(), 0);
        tx[0].transmit(&[Frame::from(&[4, 5][..])]).unwrap();
        assert_eq!((peer.received(), peer.received()), (vec![vec![4, 5]], vec![]));
    }
}

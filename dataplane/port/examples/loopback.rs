//! A port made outside the crate: it receives the frames that it transmits. `docs/ports-howto.md`
//! explains it.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use dray_port::{BATCH_MAX, Batch, Frame, Port, Receive, Scratch, Take, Transmit, scratch};

/// Opens a port that holds up to `room` frames on their way.
fn open(room: usize) -> Port {
    let (to, from) = sync_channel(room);
    let receive = Loopback { from, waiting: VecDeque::new() };
    let transmit = Entrance { to, scratch: scratch() };
    Port { rx: vec![Box::new(receive)], tx: vec![Box::new(transmit)], link: None }
}

/// The receiving half.
struct Loopback {
    from: Receiver<Vec<u8>>,
    /// Frames that were lent at most, but not taken.
    waiting: VecDeque<Vec<u8>>,
}

impl Receive for Loopback {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let room = BATCH_MAX - self.waiting.len();
        self.waiting.extend(self.from.try_iter().take(room));
        if self.waiting.is_empty() {
            return Ok(0);
        }
        let batch: Batch<'_> = self.waiting.iter().map(|bytes| Frame::from(&bytes[..])).collect();
        let lent = batch.len();
        let taken = take(&batch).min(lent);
        drop(batch);
        self.waiting.drain(..taken);
        Ok(lent)
    }
}

/// The transmitting half.
struct Entrance {
    to: SyncSender<Vec<u8>>,
    scratch: Scratch,
}

impl Transmit for Entrance {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let Self { to, scratch } = self;
        let mut send = |frame: &&Frame<'_>| to.try_send(frame.bytes(scratch).to_vec()).is_ok();
        Ok(frames.iter().take_while(|frame| send(frame)).count())
    }

    fn frame_max(&self) -> usize {
        1514
    }
}

fn main() -> io::Result<()> {
    let Port { mut rx, mut tx, .. } = open(8);
    let taken = tx[0].transmit(&[Frame::from(&[0x5a; 64][..])])?;
    let lent = rx[0].receive(&mut |frames| frames.len())?;
    println!("transmitted {taken} frame, received {lent}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_port_refuses_frames_and_untaken_ones_return_in_order() {
        let Port { mut rx, mut tx, .. } = open(3);
        let bytes = [[1; 64], [2; 64], [3; 64], [4; 64]];
        let frames = bytes.each_ref().map(|bytes| Frame::from(&bytes[..]));
        assert_eq!(tx[0].transmit(&frames).unwrap(), 3);
        let mut seen = Vec::new();
        for expected in [3, 2, 1, 0] {
            let lent = rx[0].receive(&mut |frames| {
                seen.extend(frames[0].first::<1>());
                1
            });
            assert_eq!(lent.unwrap(), expected);
        }
        assert_eq!(seen, [[1], [2], [3]]);
        assert_eq!(tx[0].transmit(&frames[3..]).unwrap(), 1, "there is room again");
    }
}

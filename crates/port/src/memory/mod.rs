//! Two ports joined in this process's memory, for tests of whatever uses ports.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use dray_wire::FRAME_MAX;

use crate::{Batch, Port, Receive, Transmit, Wait};

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// Two ports: what one transmits, the other receives. Each direction holds `capacity` frames.
pub fn pair(capacity: usize) -> (Port, Port) {
    let (ab, ba) = (Queue::default(), Queue::default());
    let port = |rx: &Queue, tx: &Queue| Port {
        rx: Box::new(MemoryReceive { queue: rx.clone(), lent: Vec::new() }),
        tx: Box::new(MemoryTransmit { queue: tx.clone(), capacity }),
    };
    (port(&ba, &ab), port(&ab, &ba))
}

struct MemoryReceive {
    queue: Queue,
    lent: Vec<Vec<u8>>,
}

impl Receive for MemoryReceive {
    fn receive<'a>(&'a mut self, batch: &mut Batch<'a>) -> io::Result<()> {
        let mut queue = self.queue.lock().expect("no panic while the queue is held");
        let count = queue.len().min(batch.capacity());
        self.lent = queue.drain(..count).collect();
        batch.extend(self.lent.iter().map(Vec::as_slice));
        Ok(())
    }

    fn dropped(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn set_wait(&mut self, _: Wait) {}
}

struct MemoryTransmit {
    queue: Queue,
    capacity: usize,
}

impl Transmit for MemoryTransmit {
    fn transmit(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
        let mut queue = self.queue.lock().expect("no panic while the queue is held");
        let count = frames.len().min(self.capacity - queue.len());
        queue.extend(frames[..count].iter().map(|frame| frame.to_vec()));
        Ok(count)
    }

    fn frame_max(&self) -> usize {
        FRAME_MAX
    }
}

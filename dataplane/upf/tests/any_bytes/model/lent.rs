//! A port in memory that its peer shares: bytes of frames change as soon as anything is
//! transmitted.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dray_port::memory::Peer;
use dray_port::{Batch, Frame, Port, Receive, Take, Transmit};

/// A frame that a peer sends.
#[derive(Clone, Debug)]
pub struct Sent {
    pub bytes: Vec<u8>,
    /// `Some`: the frame lies in shared memory, and this value is XORed into each of its bytes when
    /// any port transmits a frame.
    pub change: Option<u8>,
}

type Shared = Arc<[AtomicU8]>;
type Changes = Arc<Mutex<Vec<(Shared, u8)>>>;

enum Lent {
    Private(Vec<u8>),
    Shared(Shared),
}

impl Lent {
    fn frame(&self) -> Frame<'_> {
        match self {
            Self::Private(bytes) => Frame::from(&bytes[..]),
            Self::Shared(memory) => Frame::from(&memory[..]),
        }
    }
}

/// The peer of a port.
pub struct Far {
    pub out: Peer,
    waiting: Arc<Mutex<Vec<Sent>>>,
}

impl Far {
    pub fn send(&self, frames: Vec<Sent>) {
        self.waiting.lock().unwrap().extend(frames);
    }
}

/// Returns two ports and their peers.
pub fn ports() -> ([Port; 2], [Far; 2]) {
    let changes = Changes::default();
    let both = [(); 2].map(|()| {
        let (out, waiting) = (Peer::default(), Arc::<Mutex<Vec<Sent>>>::default());
        let mut port = out.port();
        let inner = port.tx.remove(0);
        port.tx.push(Box::new(Sink { inner, changes: changes.clone() }));
        port.rx = vec![Box::new(Source { waiting: waiting.clone(), changes: changes.clone() })];
        (port, Far { out, waiting })
    });
    let [(n3, n3_far), (n6, n6_far)] = both;
    ([n3, n6], [n3_far, n6_far])
}

struct Source {
    waiting: Arc<Mutex<Vec<Sent>>>,
    changes: Changes,
}

impl Receive for Source {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let mut frames = Vec::new();
        {
            let mut waiting = self.waiting.lock().unwrap();
            let count = waiting.len().min(dray_port::BATCH_MAX);
            for Sent { bytes, change } in waiting.drain(..count) {
                let Some(change) = change else {
                    frames.push(Lent::Private(bytes));
                    continue;
                };
                let shared: Shared = bytes.into_iter().map(AtomicU8::new).collect();
                self.changes.lock().unwrap().push((shared.clone(), change));
                frames.push(Lent::Shared(shared));
            }
        }
        let batch: Batch<'_> = frames.iter().map(Lent::frame).collect();
        if !batch.is_empty() {
            assert_eq!(take(&batch), frames.len(), "all frames are taken");
        }
        self.changes.lock().unwrap().clear();
        Ok(frames.len())
    }
}

struct Sink {
    inner: Box<dyn Transmit>,
    changes: Changes,
}

impl Transmit for Sink {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        for (memory, change) in self.changes.lock().unwrap().drain(..) {
            memory.iter().for_each(|byte| byte.store(byte.load(Relaxed) ^ change, Relaxed));
        }
        self.inner.transmit(frames)
    }

    fn frame_max(&self) -> usize {
        self.inner.frame_max()
    }
}

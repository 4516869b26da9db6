//! Pairs of queues in memory that a port shares with its peer: what `virtio`, `vhost` and `memif` ports
//! have in common. Each of them says what a queue is; how the data threads use queues that a control
//! thread puts in and takes out is said here, once for all, and compiled for each.
//!
//! * `receive`, `transmit`: the halves of such a port.

mod receive;
mod transmit;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::thread::CpuSet;

use crate::attention::Attention;
use crate::connection::Connection;
use crate::event::Wakes;
use crate::frame::Frame;
use crate::gathered::Gathered;
use crate::link::{Link, LinkState, LinkStatus};
use crate::slot::{Failure, Slot, State};
use crate::{Port, Take, Wait};

use receive::ReceiveHalf;
use transmit::TransmitHalf;

/// A queue on which a port receives.
pub(crate) trait ReceiveQueue: Send + 'static {
    /// Lends the frames that have arrived to `take`; how many those were.
    fn receive(&mut self, gathered: &mut Gathered, take: &mut Take<'_>) -> Result<usize, Failure>;

    /// Asks the peer for an event when a frame arrives, or for none. Whether one is there already.
    fn want_events(&mut self, on: bool) -> bool;
}

/// A queue on which a port transmits.
pub(crate) trait TransmitQueue: Send + 'static {
    /// Copies `frames` to where the peer finds them; how many there was room for. Those of a `series`
    /// are as [`transmit_series`](crate::Transmit::transmit_series) has them.
    fn transmit(&mut self, frames: &[Frame<'_>], series: bool) -> Result<usize, Failure>;

    /// Buffers of ours that the peer has yet to give back: at least so many frames it has not had.
    fn pending(&mut self) -> Result<usize, Failure> {
        Ok(0)
    }
}

/// The queues of a port, shared by its data threads and its control thread.
pub(crate) trait Pairs: Send + Sync + 'static {
    type Receive: ReceiveQueue;
    type Transmit: TransmitQueue;

    fn pairs(&self) -> &[Pair<Self::Receive, Self::Transmit>];

    /// Whether frames can pass.
    fn is_running(&self) -> bool;

    /// Frames of the peer that were none, or to it that can never fit, where somebody counts them.
    fn malformed(&self) -> u64 {
        0
    }

    /// Why a data thread gave up one of the queues, if one did.
    fn failure(&self) -> Option<Failure> {
        let mut pairs = self.pairs().iter();
        pairs.find_map(|pair| pair.receive.failure().or_else(|| pair.transmit.failure()))
    }
}

/// A queue in each direction.
pub(crate) struct Pair<R, T> {
    pub(crate) receive: Slot<R>,
    pub(crate) transmit: Slot<T>,
    /// What wakes who sleeps until a frame arrives.
    pub(crate) wakes: Wakes,
    /// Signalled by a data thread that needs the control thread.
    pub(crate) attention: Arc<Attention>,
}

impl<R, T> Pair<R, T> {
    /// `count` of them without queues. `attention` wakes the control thread.
    pub(crate) fn several(
        count: u16,
        attention: &Arc<Attention>,
    ) -> Result<Vec<Self>, (&'static str, io::Error)> {
        let one = |_| -> io::Result<Self> {
            Ok(Self {
                receive: Slot::new(attention.clone()),
                transmit: Slot::new(attention.clone()),
                wakes: Wakes::new()?,
                attention: attention.clone(),
            })
        };
        (0..count).map(one).collect::<io::Result<_>>().map_err(|error| ("eventfd", error))
    }

    /// Takes both queues from the data threads, and heeds the `event` of the one that receives no more.
    pub(crate) fn stop(&self, event: impl Fn(&R) -> BorrowedFd<'_>) {
        let receive = self.receive.replace(State::Stopped);
        if let State::Running(queue) | State::Failed(_, queue) = receive {
            self.wakes.forget(event(&queue));
        }
        self.transmit.replace(State::Stopped);
    }
}

/// The queues of a port that shares memory of its own, all of which are put in and taken out together.
pub(crate) struct Device<R, T> {
    pub(crate) pairs: Vec<Pair<R, T>>,
}

impl<R: ReceiveQueue, T: TransmitQueue> Pairs for Device<R, T> {
    type Receive = R;
    type Transmit = T;

    #[inline]
    fn pairs(&self) -> &[Pair<R, T>] {
        &self.pairs
    }

    fn is_running(&self) -> bool {
        // These come last.
        self.pairs.iter().all(|pair| pair.transmit.is_running())
    }
}

/// What the halves of an open port share: the last one to go closes it.
struct Shared<P> {
    // First, so that its thread has ended before the queues go.
    connection: Connection,
    pairs: Arc<P>,
}

impl<P: Pairs> Link for Shared<P> {
    fn status(&self) -> LinkStatus {
        let mut status = self.connection.status();
        if self.pairs.is_running() {
            status.state = LinkState::Running;
        }
        status
    }

    fn move_control(&self, cpus: &CpuSet) {
        self.connection.move_control(cpus);
    }
}

/// The port whose queues are `pairs`, which somebody puts in at the other end of `connection`.
pub(crate) fn port<P: Pairs>(pairs: Arc<P>, connection: Connection, wait: Wait) -> Port {
    let count = pairs.pairs().len();
    let shared = Arc::new(Shared { connection, pairs });
    Port {
        rx: (0..count)
            .map(|pair| Box::new(ReceiveHalf::new(shared.clone(), pair, wait)) as _)
            .collect(),
        tx: (0..count).map(|pair| Box::new(TransmitHalf::new(shared.clone(), pair)) as _).collect(),
        link: Some(shared),
    }
}

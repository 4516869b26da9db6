//! Queues of a port, by pairs.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dray_wire::offload::Offloads;

use crate::Take;
use crate::ends::slot::{Failure, Slot, State};
use crate::fill::Fill;
use crate::frame::Frame;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::lock::lock;
use crate::lost::Lost;
use crate::session::queue_progress::QueueProgress;
use crate::session::snapshot::SessionMessages;
use crate::signal::control_wake::ControlWake;
use crate::signal::event::Wakes;
use crate::uri::failed::Failed;

/// A queue on which a port receives.
pub(crate) trait ReceiveQueue: Send + 'static {
    /// Lends the frames that have arrived to `take`; returns how many it lent.
    fn receive(
        &mut self,
        reassembly: &mut ReassemblyBuffer,
        take: &mut Take<'_>,
    ) -> Result<usize, Failure>;

    /// Asks the peer for an event when a frame arrives, or for none. Returns true if a frame is
    /// already there.
    fn want_events(&mut self, on: bool) -> bool;

    /// See [`Receive::fill`](crate::Receive::fill).
    fn fill(&self) -> Fill;
}

/// A queue on which a port transmits.
pub(crate) trait TransmitQueue: Send + 'static {
    /// Copies `frames` to the peer; returns how many there was room for. Frames that the peer can
    /// never receive count as taken, and are added to `lost`.
    fn transmit(&mut self, frames: &[Frame<'_>], lost: &mut Lost) -> Result<usize, Failure>;

    /// See [`Transmit::fill`](crate::Transmit::fill).
    fn fill(&self) -> Fill;

    /// See [`Transmit::offloads`](crate::Transmit::offloads).
    fn offloads(&self) -> Offloads {
        Offloads::NONE
    }

    /// Returns the number of buffers that the peer has not returned yet: at least this many frames
    /// have not reached it.
    fn pending(&mut self) -> Result<usize, Failure> {
        Ok(0)
    }
}

/// The queues of a port, shared by its data threads and its control thread.
pub(crate) trait Pairs: Send + Sync + 'static {
    type Receive: ReceiveQueue;
    type Transmit: TransmitQueue;

    fn pairs(&self) -> &[Pair<Self::Receive, Self::Transmit>];

    /// Returns true if frames can pass.
    fn is_running(&self) -> bool;

    /// Returns the number of malformed frames from the peer, on transports that count them.
    fn malformed(&self) -> u64 {
        0
    }

    /// Returns the messages of the peer's session, for another process that continues the port;
    /// `None` if that is not possible. Call it while the control thread is paused.
    fn messages(&self) -> Option<io::Result<SessionMessages>> {
        None
    }

    /// Returns the progress of the queues, if another process can continue the port.
    fn progress(&self) -> Option<&Arc<QueueProgress>> {
        None
    }

    /// Returns the failure of a queue, if one has failed.
    fn failure(&self) -> Option<Failure> {
        let mut pairs = self.pairs().iter();
        pairs.find_map(|pair| pair.receive.failure().or_else(|| pair.transmit.failure()))
    }
}

/// A queue in each direction.
pub(crate) struct Pair<R, T> {
    pub(crate) receive: Slot<R>,
    pub(crate) transmit: Slot<T>,
    /// The events that wake a sleeping data thread when a frame arrives.
    pub(crate) wakes: Wakes,
    /// Signalled by a data thread that needs the control thread.
    pub(crate) wake: Arc<ControlWake>,
}

impl<R, T> Pair<R, T> {
    /// Creates `count` pairs without queues. `wake` wakes the control thread.
    pub(crate) fn several(count: u16, wake: &Arc<ControlWake>) -> Result<Vec<Self>, Failed> {
        let one = |_| -> io::Result<Self> {
            Ok(Self {
                receive: Slot::new(wake.clone()),
                transmit: Slot::new(wake.clone()),
                wakes: Wakes::new()?,
                wake: wake.clone(),
            })
        };
        (0..count).map(one).collect::<io::Result<_>>().map_err(|error| ("eventfd", error))
    }

    /// Removes both queues, and stops watching the `event` of the receiving one.
    pub(crate) fn stop(&self, event: impl Fn(&R) -> BorrowedFd<'_>) {
        let receive = self.receive.replace(State::Stopped);
        if let State::Running(queue) | State::Failed(_, queue) = receive {
            self.wakes.unwatch(event(&queue));
        }
        self.transmit.replace(State::Stopped);
    }
}

/// The queues of a port that are inserted and removed together. The first pair, which is always
/// used, is inserted last.
pub(crate) struct Device<R, T> {
    pub(crate) pairs: Vec<Pair<R, T>>,
    /// Number of malformed frames from the peer.
    pub(crate) malformed: Arc<AtomicU64>,
    /// Messages of the peer, if another process can continue the port.
    pub(crate) messages: Option<Mutex<SessionMessages>>,
    /// Progress of the queues, if another process can continue the port. Those of pair `p` have
    /// the numbers `2 * p` (transmit) and `2 * p + 1` (receive).
    pub(crate) progress: Option<Arc<QueueProgress>>,
}

impl<R, T> Device<R, T> {
    /// Creates `queues` pairs without queues. `wake` wakes the control thread.
    pub(crate) fn new(queues: u16, wake: &Arc<ControlWake>) -> Result<Self, Failed> {
        let pairs = Pair::several(queues, wake)?;
        Ok(Self { pairs, malformed: Arc::default(), messages: None, progress: None })
    }
}

impl<R: ReceiveQueue, T: TransmitQueue> Pairs for Device<R, T> {
    type Receive = R;
    type Transmit = T;

    #[inline]
    fn pairs(&self) -> &[Pair<R, T>] {
        &self.pairs
    }

    fn is_running(&self) -> bool {
        // The transmit queue of a pair is inserted last.
        self.pairs[0].transmit.is_running()
    }

    fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    fn messages(&self) -> Option<io::Result<SessionMessages>> {
        Some(lock(self.messages.as_ref()?).copy())
    }

    fn progress(&self) -> Option<&Arc<QueueProgress>> {
        self.progress.as_ref()
    }
}

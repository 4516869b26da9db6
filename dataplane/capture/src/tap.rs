//! The tap of a data thread.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

use dray_datapath::lock;
use dray_port::{Frame, OFFLOADED_LIMIT, clock};
use dray_ring::records::RecordWriter;

use crate::filter::Filter;
use crate::record::{Kind, head};

/// Shows the frames of one data thread to captures.
///
/// The thread asks [`is_on`](Self::is_on) once per batch, which costs one branch while there is no
/// capture. Control threads add and remove captures under a lock, for which the data thread never
/// waits: a batch that it finds locked is counted as missed.
#[derive(Default)]
pub struct Tap {
    /// True if there is a capture; in a cache line of its own, which changes only with it.
    on: Flag,
    subscribers: Mutex<Vec<Subscriber>>,
    /// Number of frames that were not shown because the lock was held.
    locked_out: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Flag(AtomicBool);

/// The port that counts a drop: the one that received the frame, or the one that was to transmit
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The frame was received.
    In,
    /// The frame was to be transmitted.
    Out,
}

impl Side {
    /// Returns the kind of a frame that was dropped there for the reason of this number.
    pub fn dropped(self, reason: u8) -> Kind {
        match self {
            Self::In => Kind::DroppedIn(reason),
            Self::Out => Kind::DroppedOut(reason),
        }
    }
}

impl Tap {
    /// Returns true if there is a capture.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.on.0.load(Relaxed)
    }

    /// Shows `frames` of a port to all captures.
    #[cold]
    #[inline(never)]
    pub fn show(&self, port: u16, kind: Kind, frames: &[Frame<'_>]) {
        let mut subscribers = match self.subscribers.try_lock() {
            Ok(subscribers) => subscribers,
            Err(TryLockError::Poisoned(subscribers)) => subscribers.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.locked_out.fetch_add(frames.len() as u64, Relaxed);
                return;
            }
        };
        let missed = self.locked_out.swap(0, Relaxed);
        let tick = clock::ticks();
        for subscriber in &mut *subscribers {
            if missed > 0 {
                subscriber.ring.miss(port.into(), missed);
            }
            subscriber.record(tick, port, kind, frames);
        }
    }

    pub(crate) fn add(&self, subscriber: Subscriber) {
        lock(&self.subscribers).push(subscriber);
        self.on.0.store(true, Relaxed);
    }

    /// Removes the subscriber of a capture; the data thread does not use it any more.
    pub(crate) fn remove(&self, capture: u64) {
        let mut subscribers = lock(&self.subscribers);
        let (gone, others) = mem::take(&mut *subscribers)
            .into_iter()
            .partition(|subscriber| subscriber.capture == capture);
        *subscribers = others;
        self.on.0.store(!subscribers.is_empty(), Relaxed);
        drop(subscribers);
        // The subscribers' memory is unmapped without the lock.
        drop::<Vec<Subscriber>>(gone);
    }
}

/// Frames that a capture selects.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Numbers of ports; `None`: all.
    pub(crate) ports: Option<Vec<u16>>,
    /// Side of the port; `None`: both.
    pub(crate) side: Option<Side>,
    /// True: only dropped frames; false: only frames that were not dropped.
    pub(crate) drops: bool,
    pub(crate) snaplen: usize,
    pub(crate) filter: Option<Filter>,
}

impl Selection {
    fn matches(&self, port: u16, kind: Kind) -> bool {
        let side = if kind.is_inbound() { Side::In } else { Side::Out };
        self.drops == kind.reason().is_some()
            && self.side.is_none_or(|wanted| wanted == side)
            && self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    }
}

/// Copies the frames of one data thread that a capture selects into its ring.
pub(crate) struct Subscriber {
    capture: u64,
    selection: Selection,
    ring: RecordWriter,
    /// For a copy that no peer can write to.
    copy: Box<[u8]>,
}

impl Subscriber {
    pub(crate) fn new(capture: u64, selection: Selection, ring: RecordWriter) -> Self {
        Self { capture, selection, ring, copy: vec![0; OFFLOADED_LIMIT].into() }
    }

    fn record(&mut self, tick: u64, port: u16, kind: Kind, frames: &[Frame<'_>]) {
        let Self { selection, ring, copy, .. } = self;
        if !selection.matches(port, kind) {
            return;
        }
        let mut missed = 0;
        for frame in frames {
            // A filter may read any byte.
            let most = if selection.filter.is_some() { copy.len() } else { selection.snaplen };
            let bytes = &mut copy[..most];
            let len = frame.copy_from(0, bytes);
            let bytes = &bytes[..len];
            if selection.filter.as_ref().is_some_and(|filter| !filter.keeps(bytes, frame.len())) {
                continue;
            }
            let head = head(tick, frame.len() as u32, port, kind);
            let is_taken = ring.push([&head, &bytes[..len.min(selection.snaplen)]]);
            missed += u64::from(!is_taken);
        }
        ring.publish();
        if missed > 0 {
            ring.miss(port.into(), missed);
        }
    }
}

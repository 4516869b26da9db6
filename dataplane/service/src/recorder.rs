//! The state of a running program, recorded in the supervisor's store for the next process: after a
//! crash or a restart, that process continues with the [`Snapshot`](crate::Snapshot).
//!
//! Each port has a page, which is stored again whenever the port changes. One more page has the
//! rest of the state; it is first stored when all ports have pages. Control threads report changes,
//! and the recorder's thread records them; data threads are not involved. A port's page becomes
//! invalid with the next change of the port: after a crash between a change and the new page, the
//! port's peer has to connect again.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dray_daemon::{Store, StoredPage};
use dray_datapath::lock;
use dray_port::{PausedPort, PortSnapshot};
use serde::Serialize;
use tracing::warn;

use crate::end::{PortEnd, RecordTimeout};
use crate::page::Page;
use crate::program::Program;

/// Pause after changes were recorded, so that a peer that changes its port all the time does not
/// use up a CPU.
const PAUSE: Duration = Duration::from_millis(2);
/// Interval at which the state is recorded without a reported change, and the reciprocal of the
/// part of the time that this may take.
const INTERVAL: Duration = Duration::from_secs(1);
const SHARE: u32 = 50;
/// Limit of the time for which a command waits until its effect is recorded.
const CONFIRMING: Duration = Duration::from_secs(1);

/// A program whose state is recorded.
pub trait Recorded: Send + Sync + 'static {
    /// The program's own part of the page of a port.
    type Port: Serialize + Send;

    /// Records the ports that have changed. Returns false if one is busy or could not be stored,
    /// and has to be recorded again.
    fn record_ports(&self, recorder: &Recorder<Self::Port>) -> bool;

    /// Records the rest of the state if it `is_changed`, or changes by itself. Returns false if it
    /// could not be stored.
    fn record_state(&self, recorder: &Recorder<Self::Port>, is_changed: bool) -> bool;
}

/// Recorder of a program; `P` is the program's own part of the page of a port.
pub struct Recorder<P> {
    recording: Mutex<Recording<P>>,
    /// Number of reported changes of the set of ports or of the state.
    changes: AtomicU64,
    /// Number of recorded changes.
    recorded: Mutex<u64>,
    has_recorded: Condvar,
    wake: mpsc::SyncSender<()>,
}

/// Pages in the store.
pub struct Recording<P> {
    program: Program,
    store: Store,
    ports: BTreeMap<u64, RecordedPort<P>>,
    state: Option<StoredPage>,
    has_warned: bool,
}

struct RecordedPort<P> {
    own: P,
    changes: u64,
    page: Option<StoredPage>,
}

/// Reason why a port is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    /// The port handles a message.
    Busy,
    /// The supervisor is slow to read, or memory is short: other pages cannot be stored either.
    NotStored,
}

impl<P: Serialize + Send + 'static> Recorder<P> {
    /// Records the state of a service in `store` from now on, once it [starts](Self::start).
    /// Also returns what the thread waits for.
    pub fn new(program: Program, store: Store) -> (Arc<Self>, mpsc::Receiver<()>) {
        let (wake, woken) = mpsc::sync_channel(1);
        let recording =
            Recording { program, store, ports: BTreeMap::new(), state: None, has_warned: false };
        let this = Self {
            recording: Mutex::new(recording),
            changes: AtomicU64::new(1),
            recorded: Mutex::new(0),
            has_recorded: Condvar::new(),
            wake,
        };
        (Arc::new(this), woken)
    }

    /// Starts the thread, which ends with `service`.
    pub fn start<S: Recorded<Port = P>>(
        self: &Arc<Self>,
        service: &Arc<S>,
        woken: mpsc::Receiver<()>,
    ) -> io::Result<()> {
        let (this, service) = (self.clone(), Arc::downgrade(service));
        let run = move || this.run(&service, &woken);
        thread::Builder::new().name("dray-record".to_owned()).spawn(run).map(drop)
    }

    fn run<S: Recorded<Port = P>>(&self, service: &Weak<S>, woken: &mpsc::Receiver<()>) {
        let mut due = Instant::now();
        while let Some(service) = service.upgrade() {
            let changes = self.changes.load(Ordering::SeqCst);
            let mut is_done = service.record_ports(self);
            let now = Instant::now();
            let is_changed = *lock(&self.recorded) != changes;
            if is_done && (is_changed || now >= due) {
                is_done = service.record_state(self, is_changed);
                due = Instant::now() + INTERVAL.max(now.elapsed() * SHARE);
            }
            drop(service);
            if is_done {
                *lock(&self.recorded) = changes;
                self.has_recorded.notify_all();
            }
            thread::sleep(PAUSE);
            // The sender is in this recorder.
            let _ = woken.recv_timeout(if is_done { INTERVAL } else { PAUSE });
        }
    }

    /// Locks the pages; to be called after the program's own locks.
    pub fn recording(&self) -> MutexGuard<'_, Recording<P>> {
        lock(&self.recording)
    }

    /// Reports a change of the state.
    pub fn report(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // Without room, the thread is woken already.
        let _ = self.wake.try_send(());
    }

    /// Waits until all changes so far are recorded, but at most a second. Must be called
    /// without locks.
    pub fn confirm(&self) {
        let changes = self.changes.load(Ordering::SeqCst);
        let recorded = lock(&self.recorded);
        let is_behind = |recorded: &mut u64| *recorded < changes;
        // A thread that has panicked ends the process.
        let _ = self.has_recorded.wait_timeout_while(recorded, CONFIRMING, is_behind);
    }

    /// Returns a function that reports a change of a port.
    pub fn notifier(&self) -> Box<dyn Fn() + Send + Sync> {
        let wake = self.wake.clone();
        Box::new(move || _ = wake.try_send(()))
    }
}

impl<P: Serialize> Recording<P> {
    /// Returns true if a port must be recorded: it is new, has changed, or could not be stored.
    /// `is_same` compares the program's own part.
    pub fn is_due(&self, number: u64, end: &PortEnd, is_same: impl FnOnce(&P) -> bool) -> bool {
        self.ports.get(&number).is_none_or(|recorded| {
            recorded.page.is_none() || recorded.changes != end.changes() || !is_same(&recorded.own)
        })
    }

    /// Records a port, with the `memory` that belongs to it. Returns the port with its
    /// control thread stopped; `None` if no other process can continue such a port, which is opened
    /// again.
    pub fn record_port<'e>(
        &mut self,
        number: u64,
        own: P,
        end: &'e PortEnd,
        memory: Option<BorrowedFd<'_>>,
        timeout: RecordTimeout,
    ) -> Result<Option<PausedPort<'e>>, Unrecorded> {
        let mut held = end.freeze_for_record(timeout).transpose().map_err(|_| Unrecorded::Busy)?;
        let live = held.as_mut().map_or_else(PortSnapshot::default, PausedPort::take_snapshot);
        let changes = live.changes();
        let before = self.ports.remove(&number).and_then(|before| before.page);
        let page = self.put(&Page::of_port(&self.program, number, &own, &live, memory));
        // It is outdated.
        before.iter().for_each(|before| self.store.remove(before));
        let is_stored = page.is_some();
        self.ports.insert(number, RecordedPort { own, changes, page });
        if is_stored { Ok(held) } else { Err(Unrecorded::NotStored) }
    }

    /// Removes the page of a port that is about to be closed.
    pub fn remove_port(&mut self, number: u64) {
        if let Some(recorded) = self.ports.remove(&number) {
            recorded.page.iter().for_each(|page| self.store.remove(page));
        }
    }

    /// Records the state apart from the ports. Returns false if it could not be stored; then the
    /// previous page remains.
    pub fn record_state(&mut self, page: &Page<'_>) -> bool {
        let Some(page) = self.put(page) else { return false };
        self.remove_state();
        self.state = Some(page);
        true
    }

    /// Removes the page of the state, which is outdated.
    pub fn remove_state(&mut self) {
        self.state.take().iter().for_each(|page| self.store.remove(page));
    }

    fn put(&mut self, page: &Page<'_>) -> Option<StoredPage> {
        let page = self.store.put(&page.text, &page.descriptors);
        page.inspect_err(|error| self.warn(error)).ok()
    }

    /// Logs, once, why the state is not stored.
    pub fn warn(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            warn!(%error, "the state is not yet kept for a restart");
        }
    }
}

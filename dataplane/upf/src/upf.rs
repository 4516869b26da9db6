//! The user plane function as seen by control threads.

mod creation;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use dray_capture::{Captures, Tap};
use dray_port::{LinkState, LinkStatus, Port};
use dray_wire::MacAddr;
use dray_wire::ethernet::ethertype;
use dray_wire::gtpu;
use dray_wire::gtpu::Direction;

use crate::account::Accounts;
use crate::compile::Context;
use crate::config::{ConfigError, Detector, UpfConfig};
use crate::counters::{Counters, SharedCounters};
use crate::event::{Event, EventSender, Events, EventsLost};
use crate::interface::Interface;
use crate::leaving::{Leaving, Recorder};
use crate::model::{Draft, Model, Operation, Wire};
use crate::packet;
use crate::path::{Change, Waiting};
use crate::restored::RestoredState;
use crate::session::{Peer, Report};
use crate::status::SessionStatus;
use crate::worker::Worker;
use dray_datapath::{Activity, ThreadControl, lock};
use dray_service::{PortEnd, TakeoverError};

/// A user plane function. Its directions run on their own threads
/// ([`RunningUpf`](crate::RunningUpf)), or wherever they are polled.
pub struct Upf {
    pub(crate) n3: Arc<Interface>,
    pub(crate) n6: Arc<Interface>,
    applications: HashMap<String, Arc<Detector>>,
    sessions_max: usize,
    pub(crate) model: Mutex<Model>,
    /// Channels to the workers of both directions.
    wires: Mutex<[Vec<Wire>; 2]>,
    /// Number of workers of each direction, and counters of both directions.
    workers: usize,
    pub(crate) counters: [Arc<SharedCounters>; 2],
    pub(crate) accounts: Arc<Accounts>,
    events: Events,
    event_sender: EventSender,
    /// Packets that wait for their session.
    waiting: Arc<Waiting>,
    /// N3 and N6.
    pub(crate) ends: [PortEnd; 2],
    pub(crate) control: ThreadControl,
    /// Locked by a control thread that transmits.
    pub(crate) transmits: Mutex<()>,
    /// State for the process after this one, and its recorder.
    pub(crate) leaving: OnceLock<Arc<Leaving>>,
    pub(crate) recorder: OnceLock<Arc<Recorder>>,
    /// CPU and activity of each data thread; empty without threads.
    threads: Vec<(usize, Arc<Activity>)>,
    /// Tap of control threads.
    tap: Arc<Tap>,
    captures: Arc<Captures>,
}

impl RestoredState {
    /// Continues with the usage, the counters and the queues of the ports, once a process that
    /// hands over has stopped. `upf` has been created with this state, and its threads are
    /// still paused.
    pub fn complete(self, upf: &Upf) -> Result<(), TakeoverError> {
        self.continue_by(|restored| upf.inherit(restored))
    }
}

impl Upf {
    /// Creates a user plane function from two open ports, with all sessions of `config`, which is
    /// checked as a whole. Also returns its uplink and its downlink.
    pub fn new(config: &UpfConfig, n3: Port, n6: Port) -> Result<(Self, [Worker; 2]), ConfigError> {
        let (upf, workers) = Self::create(config, [n3, n6], 1, None, &|| ())?;
        Ok((upf, workers.map(|mut workers| workers.remove(0))))
    }

    /// Continues with the usage, the counters and the neighbours of `restored`.
    fn inherit(&self, restored: &RestoredState) {
        let model = lock(&self.model);
        for (seid, numbers) in restored.continued() {
            let reports = model.resume(seid, (&restored.accounts, numbers)).into_iter();
            self.events.begin_with(reports.map(|report| report.of(seid)));
        }
        for (published, counted) in self.counters.iter().zip(restored.counters()) {
            let mut counted = counted;
            counted.end();
            published.set(SharedCounters::BEFORE, &counted);
        }
        for (interface, restored) in [&self.n3, &self.n6].into_iter().zip(&restored.neighbours) {
            interface.neighbours.resume(restored);
        }
    }

    /// Adds the data threads that it runs on.
    pub(crate) fn with_threads(self, threads: Vec<(usize, Arc<Activity>)>) -> Self {
        Self { threads, ..self }
    }

    /// Returns the CPU and the activity of each data thread.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (usize, &Activity)> {
        self.threads.iter().map(|(cpu, activity)| (*cpu, &**activity))
    }

    /// Checks that all data threads publish; the error names those that do not. Takes two seconds
    /// if one does not.
    pub fn check_alive(&self) -> Result<(), String> {
        let threads = self.threads().map(|(cpu, of)| (format!("thread on CPU {cpu}"), of));
        // They sleep for milliseconds only.
        let wake = || {};
        dray_datapath::check_alive(threads, wake)
    }

    /// Returns the number of packets that are buffered now: that wait for their session, or for the
    /// Ethernet address of their next hop.
    pub fn buffered(&self) -> usize {
        let interfaces = [&self.n3, &self.n6];
        let unresolved = interfaces.map(|interface| interface.neighbours.waiting());
        self.waiting.total() + unresolved.iter().sum::<usize>()
    }

    /// Returns the captures of its frames.
    pub(crate) fn captures(&self) -> &Arc<Captures> {
        &self.captures
    }

    /// Returns the status of the links of N3 and N6 to their peers.
    pub fn links(&self) -> [LinkStatus; 2] {
        let status = |end: &PortEnd| match &end.link {
            Some(link) => link.status(),
            None => LinkStatus { state: LinkState::Running, ..LinkStatus::default() },
        };
        self.ends.each_ref().map(status)
    }

    /// Applies all of `operations`, or none if one of them is invalid. Each session changes as a
    /// whole while packets are forwarded. Returns once the changes are sent to both directions,
    /// which have to be polled meanwhile.
    pub fn apply(&self, operations: &[Operation]) -> Result<(), ConfigError> {
        let wires = lock(&self.wires);
        let made = || wires.iter().flatten().map(Wire::made).min().unwrap_or_default();
        self.transact(operations, made, |changes| {
            for (workers, change) in wires.iter().zip(changes) {
                each(workers, change, |wire: &Wire, change| wire.send(change));
            }
        })
    }

    /// Like [`apply`](Self::apply). `send` receives the changes for both directions; `made` returns
    /// the number of changes that all workers have made.
    fn transact(
        &self,
        operations: &[Operation],
        made: impl Fn() -> u64,
        send: impl FnMut([Change; 2]),
    ) -> Result<(), ConfigError> {
        let mut model = lock(&self.model);
        let mut draft = Draft::default();
        let Self { applications, n3, accounts, .. } = self;
        let context = Context { applications, n3, accounts };
        for operation in operations {
            model.check(&mut draft, operation, &context)?;
        }
        let tell = |seid, report: &Report| _ = self.event_sender.send(report.of(seid));
        model.commit(draft, |peer| self.end_marker(peer), made, send, tell);
        Ok(())
    }

    /// Returns the frame with the last message into a tunnel, and its next hop; the destination of
    /// the frame is 0.
    fn end_marker(&self, peer: &Peer) -> Option<(u16, Vec<u8>)> {
        let own = self.n3.address_for(peer.address)?;
        let message = gtpu::end_marker(peer.teid);
        let packet = packet::datagram(own, peer.address, gtpu::PORT, &message)?;
        let kind = if own.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
        Some((peer.hop, self.n3.frame(MacAddr([0; 6]), kind, &packet)))
    }

    /// Returns the counters of the uplink, as published periodically.
    pub fn uplink(&self) -> Counters {
        self.counted(Direction::Uplink)
    }

    /// Returns the counters of the downlink, as published periodically.
    pub fn downlink(&self) -> Counters {
        self.counted(Direction::Downlink)
    }

    fn counted(&self, direction: Direction) -> Counters {
        self.counters[direction as usize].sum()
    }

    /// Returns the counters of each worker of a direction.
    pub(crate) fn workers(&self, direction: Direction) -> impl Iterator<Item = Counters> {
        let published = &self.counters[direction as usize];
        (0..self.workers).map(|worker| published.get(SharedCounters::row_of(worker)))
    }

    /// Returns the number of sessions.
    pub fn session_count(&self) -> usize {
        lock(&self.model).len()
    }

    /// Returns the maximum number of sessions.
    pub fn sessions_max(&self) -> usize {
        self.sessions_max
    }

    /// Returns the status of a session with its configuration, if it exists.
    pub fn session(&self, seid: u64) -> Option<SessionStatus> {
        lock(&self.model).status(seid)
    }

    /// Returns the status of all sessions, in order of SEID.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        lock(&self.model).statuses()
    }

    /// Returns the events of the data path since the last call.
    pub fn events(&self) -> Vec<Event> {
        self.events.take()
    }

    /// Returns the number of events lost because they were not read in time.
    pub fn events_lost(&self) -> EventsLost {
        self.events.lost()
    }

    /// Announces the addresses of its interfaces to peers that have connected since the last call;
    /// returns true if there is one.
    pub fn announce(&self) -> bool {
        let announces = |(interface, direction): (&Interface, Direction)| {
            let mut counters = Counters::default();
            let has_connected = interface.announce(&self.tap, &mut counters);
            self.counters[direction as usize].add(SharedCounters::CONTROL, &counters);
            has_connected
        };
        self.senders().map(announces).contains(&true)
    }

    /// Starts a round of solicitations: sends those for neighbours whose Ethernet address is
    /// unknown, and at longer intervals for all others; removes neighbours that no session
    /// needs any more. Must be called every 50 ms, and when a peer has connected.
    pub fn solicit_neighbours(&self) {
        self.remove_unused_neighbours();
        for (interface, direction) in self.senders() {
            let mut counters = Counters::default();
            for solicitation in interface.neighbours.solicitations() {
                interface.solicit(solicitation, (0, &self.tap), &mut counters);
            }
            self.counters[direction as usize].add(SharedCounters::CONTROL, &counters);
        }
    }

    /// Returns the interfaces, and the direction that transmits on each.
    fn senders(&self) -> [(&Interface, Direction); 2] {
        [(&self.n3, Direction::Downlink), (&self.n6, Direction::Uplink)]
    }

    /// Announces addresses, and solicits neighbours if that `is_due` or a peer has connected;
    /// returns true if it has solicited. Does nothing while data threads are paused.
    pub(crate) fn serve_neighbours(&self, is_due: bool) -> bool {
        let _transmits = lock(&self.transmits);
        if !self.control.runs() || !(self.announce() || is_due) {
            return false;
        }
        self.solicit_neighbours();
        true
    }

    /// Removes unused neighbours; skipped while sessions are being changed, since the next call is
    /// soon.
    fn remove_unused_neighbours(&self) {
        let (Ok(wires), Ok(_model)) = (self.wires.try_lock(), self.model.try_lock()) else {
            return;
        };
        let made = wires.iter().flatten().map(Wire::made).min().unwrap_or_default();
        self.n3.neighbours.remove_unused(made);
    }
}

/// Passes each worker a copy of the change, and the last worker the change itself.
fn each<W>(workers: impl IntoIterator<Item = W>, change: Change, mut send: impl FnMut(W, Change)) {
    let mut workers = workers.into_iter().peekable();
    while let Some(worker) = workers.next() {
        if workers.peek().is_none() {
            return send(worker, change);
        }
        send(worker, change.clone());
    }
}

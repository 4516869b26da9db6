//! Creation of a user plane function, with its workers and sessions.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dray_capture::{Captures, Tap};
use dray_datapath::{Sharing, ThreadControl};
use dray_port::{Port, Receive, clock};
use dray_service::PortEnd;
use dray_wire::ethernet::ETHERNET_LEN;
use dray_wire::gtpu::Direction;
use tracing::warn;

use super::{Upf, each};
use crate::account::Accounts;
use crate::config::{ConfigError, Detector, Generator, SessionConfig, UpfConfig};
use crate::counters::{DropReason, SharedCounters};
use crate::event::{EventSender, events};
use crate::interface::Interface;
use crate::model::{KEYS_PER_SESSION, LEAVING_MAX, Model, Operation, Wire};
use crate::path::{
    Downlink, Forwarder, MESSAGES_MAX, PacketBuffer, Sessions, State, Unresolved, Uplink, Waiting,
};
use crate::restored::RestoredState;
use crate::tunnels::Tunnels;
use crate::worker::Worker;

/// Maximum number of sessions.
const SESSIONS_MAX: usize = 1 << 24;
/// Maximum number of buffered packets.
const BUFFER_MAX: usize = 1 << 20;
/// Maximum time that packets may be buffered, in milliseconds: an hour.
const BUFFER_MS_MAX: u32 = 3_600_000;

type Queues = Vec<Box<dyn Receive>>;

/// The parts that the workers of both directions have in common.
struct Common<'c> {
    config: &'c UpfConfig,
    /// Number of workers of each direction.
    count: usize,
    n3: Arc<Interface>,
    n6: Arc<Interface>,
    accounts: Arc<Accounts>,
    counters: [Arc<SharedCounters>; 2],
    tunnels: Arc<Tunnels>,
    waiting: Arc<Waiting>,
    event_sender: EventSender,
    /// One tap for each worker of both directions, and one for control threads.
    taps: Vec<Arc<Tap>>,
}

impl Upf {
    /// Like [`new`](Self::new), with `count` workers for each direction, among which the queues of
    /// the ports are divided. Packets of a session may arrive at any worker. Packets of a flow
    /// must arrive on the same queue to stay in order, as they do on ports that distribute
    /// flows by a hash.
    ///
    /// With `restored`, the sessions are those of another process; they get their usage in
    /// [`RestoredState::complete`]. Sessions that are not valid with `config` end, which is logged.
    /// Calls `progress` after every 1000 sessions, since a million of them may take a minute on
    /// a busy machine.
    pub fn create(
        config: &UpfConfig,
        [n3, n6]: [Port; 2],
        count: usize,
        restored: Option<&mut RestoredState>,
        progress: &dyn Fn(),
    ) -> Result<(Self, [Vec<Worker>; 2]), ConfigError> {
        check(config)?;
        check_workers("n3", &n3, count)?;
        check_workers("n6", &n6, count)?;
        let applications = detectors(config)?;
        let end = |port: &Port| {
            PortEnd::new(port).map_err(|error| ConfigError::new(format!("port: {error}")))
        };
        let ends = [end(&n3)?, end(&n6)?];
        let taps: Vec<Arc<Tap>> = (0..=2 * count).map(|_| Arc::default()).collect();
        let reasons = DropReason::ALL.iter().map(|reason| reason.name());
        let captures = Arc::new(Captures::new(taps.clone(), reasons));
        let (event_sender, events) = events();
        let interface = |name: &str, config: &_, ours, tx| {
            Interface::new((name, captures.add_port(name)), config, ours, tx).map(Arc::new)
        };
        let ours = [&config.n3.addresses[..], &config.n6.addresses].concat();
        let lifetime = lifetime(config);
        let published = || SharedCounters::new(count).map(Arc::new).map_err(|error| memory(&error));
        let common = Common {
            config,
            count,
            n3: interface("n3", &config.n3, ours.clone(), n3.tx)?,
            n6: interface("n6", &config.n6, ours, n6.tx)?,
            accounts: Accounts::new(numbers(config)).map_err(|error| memory(&error))?,
            counters: [published()?, published()?],
            tunnels: Arc::default(),
            waiting: Waiting::new(
                config.buffer_packets,
                config.buffer_per_session,
                lifetime,
                numbers(config),
            ),
            event_sender,
            taps,
        };
        let model = common.model();
        let (mut directions, wires) = common.workers([n3.rx, n6.rx]);
        let Common { n3, n6, accounts, counters, waiting, event_sender, taps, .. } = common;
        let upf = Self {
            n3,
            n6,
            applications,
            sessions_max: config.sessions_max,
            model: Mutex::new(model),
            wires: Mutex::new(wires),
            workers: count,
            counters,
            accounts,
            events,
            event_sender,
            waiting,
            ends,
            control: ThreadControl::default(),
            transmits: Mutex::default(),
            leaving: OnceLock::new(),
            recorder: OnceLock::new(),
            threads: Vec::new(),
            tap: taps[taps.len() - 1].clone(),
            captures,
        };
        if restored.is_some() {
            directions.iter_mut().flatten().for_each(Worker::continue_another);
        }
        upf.add_sessions(config, restored, &mut directions, progress)?;
        Ok((upf, directions))
    }

    /// Adds the sessions of `config`, or those of the process before.
    fn add_sessions(
        &self,
        config: &UpfConfig,
        restored: Option<&mut RestoredState>,
        directions: &mut [Vec<Worker>; 2],
        progress: &dyn Fn(),
    ) -> Result<(), ConfigError> {
        let mut added = 0usize;
        let mut add = |session: SessionConfig| {
            let nothing_leaves = || 0;
            self.transact(&[Operation::Add(session)], nothing_leaves, |changes| {
                for (workers, change) in directions.iter_mut().zip(changes) {
                    each(workers, change, |worker, mut change| worker.change(&mut change));
                }
            })?;
            added += 1;
            if added.is_multiple_of(1000) {
                progress();
            }
            Ok(())
        };
        let Some(restored) = restored else { return config.all_sessions().try_for_each(add) };
        for session in restored.sessions(config) {
            if let Err(error) = add(session) {
                warn!(%error, "a session does not continue");
            }
        }
        Ok(())
    }
}

impl Common<'_> {
    fn model(&self) -> Model {
        Model::new(
            self.config.sessions_max,
            self.count,
            self.accounts.clone(),
            self.n3.clone(),
            self.tunnels.clone(),
            self.waiting.clone(),
        )
    }

    /// Creates the workers of both directions, and the channels to them; `n3` and `n6` are the
    /// queues that they receive from.
    fn workers(&self, [n3, n6]: [Queues; 2]) -> ([Vec<Worker>; 2], [Vec<Wire>; 2]) {
        let config = self.config;
        // Messages for users, from uplink to downlink.
        let messages = (0..self.count).map(|_| sync_channel(MESSAGES_MAX));
        let (to_downlink, of_uplink): (Vec<_>, Vec<_>) = messages.unzip();
        let uplink = deal(n3, self.count).into_iter().zip(to_downlink).enumerate();
        let uplink = uplink.map(|(worker, (rx, to_downlink))| {
            let uplink = Uplink::new(to_downlink, self.tunnels.clone());
            let (forwarder, wire) = self.forwarder(Direction::Uplink, worker);
            (Worker::new(rx, forwarder, State::Uplink(Box::new(uplink))), wire)
        });
        let frame_max = ETHERNET_LEN + usize::from(config.n6.mtu);
        let downlink = deal(n6, self.count).into_iter().zip(of_uplink).enumerate();
        let downlink = downlink.map(|(worker, (rx, of_uplink))| {
            let store = PacketBuffer::new(config.buffer_packets, frame_max, lifetime(config));
            let downlink = Downlink { store, waiting: self.waiting.clone(), of_uplink };
            let (forwarder, wire) = self.forwarder(Direction::Downlink, worker);
            (Worker::new(rx, forwarder, State::Downlink(Box::new(downlink))), wire)
        });
        let (uplink, of_uplink) = uplink.unzip();
        let (downlink, of_downlink) = downlink.unzip();
        ([uplink, downlink], [of_uplink, of_downlink])
    }

    fn forwarder(&self, direction: Direction, worker: usize) -> (Forwarder, Wire) {
        let (wire, changes) = Wire::new();
        let ends = match direction {
            Direction::Uplink => (self.n3.clone(), self.n6.clone()),
            Direction::Downlink => (self.n6.clone(), self.n3.clone()),
        };
        let keys = KEYS_PER_SESSION * self.config.sessions_max;
        let sessions = Sessions::new(numbers(self.config), keys, self.accounts.clone());
        let published = self.counters[direction as usize].clone();
        let sharing = if self.count == 1 { Sharing::Alone } else { Sharing::Shared };
        let of = (worker, sharing);
        let (sessions, events) = ((sessions, changes), self.event_sender.clone());
        let frame_max = ETHERNET_LEN + ends.1.mtu;
        let unresolved = Unresolved::new(self.config.buffer_packets, frame_max);
        let mut forwarder =
            Forwarder::new(direction, of, ends, sessions, published, events, unresolved);
        forwarder.tap = self.taps[direction as usize * self.count + worker].clone();
        (forwarder, wire)
    }
}

/// Returns the number of session numbers.
fn numbers(config: &UpfConfig) -> usize {
    config.sessions_max + LEAVING_MAX
}

/// Returns the lifetime of a buffered packet, in ticks.
fn lifetime(config: &UpfConfig) -> u64 {
    clock::to_ticks(Duration::from_millis(config.buffer_ms.into()))
}

fn memory(error: &io::Error) -> ConfigError {
    ConfigError::new(format!("memory: {error}"))
}

fn wrong(field: &str, what: String) -> Result<(), ConfigError> {
    Err(ConfigError::new(what).in_field(field))
}

/// Checks the keys that concern all sessions.
fn check(config: &UpfConfig) -> Result<(), ConfigError> {
    let UpfConfig { sessions_max, buffer_packets, buffer_ms, .. } = *config;
    let count = config.session_count();
    if sessions_max == 0 || sessions_max > SESSIONS_MAX {
        return wrong("sessions_max", format!("{sessions_max}: give 1 to {SESSIONS_MAX}"));
    }
    if count > sessions_max {
        let what = format!("{sessions_max}: too few for {count} configured sessions");
        return wrong("sessions_max", what);
    }
    if buffer_packets > BUFFER_MAX {
        return wrong("buffer_packets", format!("{buffer_packets}: give 0 to {BUFFER_MAX}"));
    }
    if !(1..=BUFFER_MS_MAX).contains(&buffer_ms) {
        return wrong("buffer_ms", format!("{buffer_ms}: give 1 to {BUFFER_MS_MAX}"));
    }
    if !config.n6.gnbs.is_empty() {
        return wrong("n6.gnbs", "gNBs are only on N3: leave gnbs out".to_owned());
    }
    config.generate.as_ref().map_or(Ok(()), Generator::check)
}

/// Checks that there are as many workers as a port has queues, or fewer.
fn check_workers(name: &str, port: &Port, workers: usize) -> Result<(), ConfigError> {
    let queues = port.rx.len();
    if (1..=queues).contains(&workers) {
        return Ok(());
    }
    wrong(name, format!("{workers} workers: the port has {queues} queues; give 1 to {queues}"))
}

/// Returns the configured applications by name.
fn detectors(config: &UpfConfig) -> Result<HashMap<String, Arc<Detector>>, ConfigError> {
    let mut detectors = HashMap::new();
    for (number, application) in config.applications.iter().enumerate() {
        let detector = Arc::new(Detector::from(application));
        if detectors.insert(application.name.clone(), detector).is_some() {
            let what = format!("{:?} is given twice", application.name);
            wrong(&format!("applications[{number}].name"), what)?;
        }
        if application.servers.is_empty() {
            wrong(&format!("applications[{number}].servers"), "give at least one".to_owned())?;
        }
    }
    Ok(detectors)
}

/// Divides `queues` among `workers` workers.
fn deal(queues: Vec<Box<dyn Receive>>, workers: usize) -> Vec<Vec<Box<dyn Receive>>> {
    let mut dealt: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    queues.into_iter().enumerate().for_each(|(index, rx)| dealt[index % workers].push(rx));
    dealt
}

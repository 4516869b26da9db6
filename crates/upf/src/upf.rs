//! The user plane function as control threads see it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dray_port::{Frame, Port};
use dray_wire::ethernet::{ETHERNET_LEN, ethertype};
use dray_wire::gtpu;
use smallvec::SmallVec;

use crate::compile::{Compiled, Context, compile};
use crate::config::{self, ConfigError, Detector, SessionConfig, UpfConfig};
use crate::counters::{Counters, Published};
use crate::direction::Direction;
use crate::event::{Event, Events, events};
use crate::interface::{Interface, lock};
use crate::path::{self, Change, Changes, Downlink, Lane, Path, Sessions, Store, Uplink};
use crate::session::{Peer, Session};
use crate::usage::{Counted, Usage, Way};

/// Room for so many keys by session: two addresses, or two tunnels.
const KEYS_PER_SESSION: usize = 2;
/// Changes under way to a direction.
const CHANGES_MAX: usize = 1024;
/// How often neighbours that are not known are asked for.
const ASK: Duration = Duration::from_millis(500);
/// After so many of those, the others are asked for as well, who may have another address by now.
const ASK_ALL: u32 = 60;

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Adds a session, or puts it in the place of the one with its SEID: what its rules count and
    /// limit goes on where rules of the same numbers were.
    Put {
        /// The session.
        session: SessionConfig,
        /// Whether an end marker is sent into tunnels that are left.
        end_marker: bool,
    },
    /// Removes a session.
    Remove {
        /// Its SEID.
        seid: u64,
    },
}

/// A user plane function. Its directions run on threads of their own ([`Running`]), or wherever they
/// are polled.
pub struct Upf {
    n3: Arc<Interface>,
    n6: Arc<Interface>,
    applications: HashMap<String, Arc<Detector>>,
    sessions_max: usize,
    model: Mutex<Model>,
    counters: [Arc<Published>; 2],
    events: Events,
}

/// The sessions that there are.
struct Model {
    sessions: HashMap<u64, Known>,
    /// By key, whose it is.
    teids: HashMap<u64, u64>,
    addresses: HashMap<u64, u64>,
    /// Numbers that were given back, and the next one that was never used.
    free: Vec<u32>,
    next: u32,
    /// To both directions.
    wires: [Wire; 2],
}

/// To a direction, and back.
struct Wire {
    wanted: SyncSender<Change>,
    done: Receiver<Change>,
}

/// What is remembered of a session.
struct Known {
    slot: u32,
    teids: SmallVec<[u64; 2]>,
    addresses: SmallVec<[u64; 2]>,
    usages: SmallVec<[Arc<Usage>; 2]>,
    tunnels: SmallVec<[Peer; 1]>,
}

/// A transaction, checked: what becomes of both directions, and of the model.
struct Step {
    seid: u64,
    /// `None`: it is removed.
    compiled: Option<Compiled>,
    end_marker: bool,
}

impl Upf {
    /// Makes a user plane function of two open ports, with all sessions of `config`, which is checked
    /// as a whole. Returns its uplink and its downlink beside it.
    pub fn new(
        config: &UpfConfig,
        n3: Port,
        n6: Port,
    ) -> Result<(Self, [Direction; 2]), ConfigError> {
        let wrong = |field: &str, what: String| Err(ConfigError::new(what).in_field(field));
        let count = config.session_count();
        let most = 1 << 24;
        if config.sessions_max == 0 || config.sessions_max > most {
            return wrong("sessions_max", format!("{}: give 1 to {most}", config.sessions_max));
        }
        if count > config.sessions_max {
            let what = format!("{}: but there are {count} sessions", config.sessions_max);
            return wrong("sessions_max", what);
        }
        if config.buffer_packets > 1 << 20 {
            return wrong("buffer_packets", "give 1048576 at most".to_owned());
        }
        if let Some(generator) = &config.generate {
            generator.check()?;
        }
        let mut applications = HashMap::new();
        for (number, application) in config.applications.iter().enumerate() {
            let known = applications
                .insert(application.name.clone(), Arc::new(Detector::from(application)));
            if known.is_some() {
                let what = format!("{:?} is given twice", application.name);
                return wrong(&format!("applications[{number}].name"), what);
            }
            if application.servers.is_empty() {
                return wrong(&format!("applications[{number}].servers"), "give some".to_owned());
            }
        }
        let (n3_rx, n3_tx) = halves(n3);
        let (n6_rx, n6_tx) = halves(n6);
        let n3 = Arc::new(Interface::new("n3", &config.n3, n3_tx)?);
        let n6 = Arc::new(Interface::new("n6", &config.n6, n6_tx)?);
        let (teller, events) = events();
        let keys = KEYS_PER_SESSION * config.sessions_max;
        let sessions = || Sessions::new(config.sessions_max, keys);
        let (wires, changes): (Vec<_>, Vec<_>) = (0..2).map(|_| wire()).unzip();
        let [up_wire, down_wire] = <[Wire; 2]>::try_from(wires).ok().expect("two");
        let [up, down] = <[Changes; 2]>::try_from(changes).ok().expect("two");
        let uplink = Lane::new(Way::Uplink, n3.clone(), n6.clone(), sessions(), up, teller.clone());
        let downlink = Lane::new(Way::Downlink, n6.clone(), n3.clone(), sessions(), down, teller);
        let counters = [uplink.published.clone(), downlink.published.clone()];
        let frame_max = ETHERNET_LEN + usize::from(config.n6.mtu);
        let store = Store::new(config.buffer_packets, config.buffer_per_session, frame_max);
        let mut directions = [
            Direction::new(n3_rx, Path::Uplink(Box::new(Uplink(uplink)))),
            Direction::new(n6_rx, Path::Downlink(Box::new(Downlink { lane: downlink, store }))),
        ];
        let model = Model {
            sessions: HashMap::new(),
            teids: HashMap::new(),
            addresses: HashMap::new(),
            free: Vec::new(),
            next: 0,
            wires: [up_wire, down_wire],
        };
        let upf = Self {
            n3,
            n6,
            applications,
            sessions_max: config.sessions_max,
            model: Mutex::new(model),
            counters,
            events,
        };
        {
            let mut model = lock(&upf.model);
            for session in config.all_sessions() {
                let step =
                    upf.check(&model, &Operation::Put { session, end_marker: false }, &[])?;
                if model.sessions.contains_key(&step.seid) {
                    let what = ConfigError::new("is given twice").in_field("seid");
                    return Err(what.in_session(step.seid));
                }
                for (direction, mut change) in
                    directions.iter_mut().zip(upf.commit(&mut model, step))
                {
                    direction.path().change(&mut change);
                }
            }
        }
        Ok((upf, directions))
    }

    /// Makes all of `operations`, or, where one of them cannot be made, none. Each session changes as a
    /// whole while packets go on. Returns once both directions, which have to be polled meanwhile, have
    /// been told.
    pub fn apply(&self, operations: &[Operation]) -> Result<(), ConfigError> {
        let mut model = lock(&self.model);
        let mut steps = Vec::with_capacity(operations.len());
        for operation in operations {
            let step = self.check(&model, operation, &steps)?;
            steps.push(step);
        }
        for step in steps {
            let changes = self.commit(&mut model, step);
            for (wire, change) in model.wires.iter().zip(changes) {
                wire.send(change);
            }
        }
        Ok(())
    }

    /// Whether an operation can be made once those `before` it are.
    fn check(
        &self,
        model: &Model,
        operation: &Operation,
        before: &[Step],
    ) -> Result<Step, ConfigError> {
        let (seid, config, end_marker) = match operation {
            Operation::Put { session, end_marker } => (session.seid, Some(session), *end_marker),
            Operation::Remove { seid } => (*seid, None, false),
        };
        let wrong =
            |field: &str, what: String| ConfigError::new(what).in_field(field).in_session(seid);
        // A session twice in one transaction would need its own state in between.
        if before.iter().any(|step| step.seid == seid) {
            return Err(wrong("seid", "is in the transaction twice".to_owned()));
        }
        let known = model.sessions.get(&seid);
        let Some(config) = config else {
            let missing = || wrong("seid", "there is no such session".to_owned());
            return known.map(|_| Step { seid, compiled: None, end_marker }).ok_or_else(missing);
        };
        let context = Context { applications: &self.applications, n3: &self.n3 };
        let usages = known.map_or(&[][..], |known| &known.usages);
        let compiled = compile(config, &context, usages)?;
        let claims = [
            ("pdrs", &compiled.teids, &model.teids),
            ("ue", &compiled.addresses, &model.addresses),
        ];
        for (field, keys, owners) in claims {
            for (number, key) in keys.iter().enumerate() {
                // Whoever had it may have let go of it, and another one taken it.
                let mut owner = owners.get(key).copied();
                for step in before {
                    let keys = step.compiled.as_ref().map(|compiled| match field {
                        "ue" => &compiled.addresses,
                        _ => &compiled.teids,
                    });
                    match keys.is_some_and(|keys| keys.contains(key)) {
                        true => owner = Some(step.seid),
                        false => owner = owner.filter(|owner| *owner != step.seid),
                    }
                }
                let Some(owner) = owner.filter(|owner| *owner != seid) else { continue };
                return Err(match field {
                    "ue" => {
                        let what = format!("{}: session {owner} has it", config.ue[number]);
                        wrong(&format!("ue[{number}]"), what)
                    }
                    _ => {
                        let same = |pdr: &config::Pdr| pdr.teid.map(u64::from) == Some(*key);
                        let pdr = config.pdrs.iter().position(same).unwrap_or(0);
                        let what = format!("{key}: session {owner} has it");
                        wrong(&format!("pdrs[{pdr}].teid"), what)
                    }
                });
            }
        }
        let (mut sessions, mut teids, mut addresses) =
            (model.sessions.len(), model.teids.len(), model.addresses.len());
        for step in before {
            sessions += usize::from(step.compiled.is_some());
            teids += step.compiled.as_ref().map_or(0, |compiled| compiled.teids.len());
            addresses += step.compiled.as_ref().map_or(0, |compiled| compiled.addresses.len());
        }
        let room = known.is_some() || sessions < self.sessions_max;
        let keys = teids.max(addresses) + compiled.teids.len().max(compiled.addresses.len());
        if !room || keys > KEYS_PER_SESSION * self.sessions_max {
            let what = format!("there is room for {} sessions", self.sessions_max);
            return Err(wrong("seid", what));
        }
        Ok(Step { seid, compiled: Some(compiled), end_marker })
    }

    /// Puts a step into the model; what is to change in either direction.
    fn commit(&self, model: &mut Model, step: Step) -> [Change; 2] {
        let Step { seid, compiled, end_marker } = step;
        let before = model.sessions.remove(&seid);
        let slot = before.as_ref().map(|known| known.slot).or_else(|| model.free.pop());
        let slot = slot.unwrap_or_else(|| {
            model.next += 1;
            model.next - 1
        });
        let (old_teids, old_addresses, old_tunnels) = match before {
            Some(known) => (known.teids, known.addresses, known.tunnels),
            None => Default::default(),
        };
        old_teids.iter().for_each(|key| _ = model.teids.remove(key));
        old_addresses.iter().for_each(|key| _ = model.addresses.remove(key));
        let (mut teids, mut addresses) = (SmallVec::new(), SmallVec::new());
        let mut sessions = [Box::<Session>::default(), Box::default()];
        let mut farewell = Vec::new();
        match compiled {
            None => model.free.push(slot),
            Some(compiled) => {
                let Compiled { uplink, downlink, usages, .. } = compiled;
                (teids, addresses) = (compiled.teids.clone(), compiled.addresses.clone());
                teids.iter().for_each(|key| _ = model.teids.insert(*key, seid));
                addresses.iter().for_each(|key| _ = model.addresses.insert(*key, seid));
                let tunnels = downlink.tunnels.clone();
                if end_marker {
                    let left = |old: &&Peer| {
                        !tunnels
                            .iter()
                            .any(|new| (new.address, new.teid) == (old.address, old.teid))
                    };
                    let markers = old_tunnels.iter().filter(left);
                    farewell.extend(markers.filter_map(|old| self.end_marker(old)));
                }
                let known = Known {
                    slot,
                    teids: teids.clone(),
                    addresses: addresses.clone(),
                    usages,
                    tunnels,
                };
                model.sessions.insert(seid, known);
                sessions = [uplink, downlink];
            }
        }
        let [uplink, downlink] = sessions;
        [
            Change {
                slot,
                remove: old_teids,
                insert: teids,
                session: uplink,
                farewell: Vec::new(),
            },
            Change { slot, remove: old_addresses, insert: addresses, session: downlink, farewell },
        ]
    }

    /// The frame with the last message into a tunnel.
    fn end_marker(&self, peer: &Peer) -> Option<Vec<u8>> {
        let own = self.n3.address_for(peer.address)?;
        let message = gtpu::end_marker(peer.teid);
        let packet = path::datagram(own, peer.address, gtpu::PORT, &message)?;
        let kind = if own.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
        Some(self.n3.frame(self.n3.mac_of(peer.hop)?, kind, &packet))
    }

    /// What the uplink has counted; published now and then.
    pub fn uplink(&self) -> Counters {
        self.counters[0].read()
    }

    /// What the downlink has counted; published now and then.
    pub fn downlink(&self) -> Counters {
        self.counters[1].read()
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        lock(&self.model).sessions.len()
    }

    /// What a session's usage reporting rules have counted, by their numbers; `None` where there is
    /// no such session.
    pub fn usage(&self, seid: u64) -> Option<Vec<(u32, Counted)>> {
        let model = lock(&self.model);
        let known = model.sessions.get(&seid)?;
        Some(known.usages.iter().map(|usage| (usage.urr, usage.counted())).collect())
    }

    /// What the data path has told since the last call.
    pub fn events(&self) -> Vec<Event> {
        self.events.take()
    }

    /// How many events were lost because nobody took them.
    pub fn events_lost(&self) -> u64 {
        self.events.lost()
    }

    /// Asks for neighbours whose Ethernet address is not known, or for `all` of them.
    pub fn ask_for_neighbours(&self, all: bool) {
        for interface in [&self.n3, &self.n6] {
            for question in interface.questions(!all) {
                interface.transmit(&[Frame::from(&question[..])]);
            }
        }
    }
}

impl Wire {
    /// Sends a change, and gives back the memory of those that were made.
    fn send(&self, mut change: Change) {
        loop {
            self.done.try_iter().for_each(drop);
            match self.wanted.try_send(change) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => {
                    change = back;
                    thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }
}

fn wire() -> (Wire, Changes) {
    let (wanted, wants) = sync_channel(CHANGES_MAX);
    let (does, done) = sync_channel(2 * CHANGES_MAX);
    (Wire { wanted, done }, Changes { wanted: wants, done: does })
}

/// All receiving halves, and the first of the transmitting ones.
fn halves(port: Port) -> (Vec<Box<dyn dray_port::Receive>>, Box<dyn dray_port::Transmit>) {
    let tx = port.tx.into_iter().next().expect("a port has a queue");
    (port.rx, tx)
}

/// A user plane function whose directions run on threads. It ends when it is dropped.
pub struct Running {
    upf: Arc<Upf>,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Running {
    /// Starts a thread for each of `cpus`, which are one or two: on two the directions have one each.
    /// Without any work for as long as `idle`, a thread sleeps.
    pub fn start(
        upf: Upf,
        directions: [Direction; 2],
        cpus: &[usize],
        idle: Option<Duration>,
    ) -> std::io::Result<Self> {
        let mut running = Self {
            upf: Arc::new(upf),
            stop: Arc::default(),
            threads: Vec::new(),
            failure: Arc::default(),
        };
        let [uplink, downlink] = directions;
        let (uplink_cpu, downlink_cpu) = (cpus[0], cpus[cpus.len() - 1]);
        if uplink_cpu == downlink_cpu {
            running.spawn("upf", uplink_cpu, vec![uplink, downlink], idle)?;
        } else {
            running.spawn("upf-uplink", uplink_cpu, vec![uplink], idle)?;
            running.spawn("upf-downlink", downlink_cpu, vec![downlink], idle)?;
        }
        let (upf, stop) = (running.upf.clone(), running.stop.clone());
        let asker = thread::Builder::new().name("upf-neighbours".to_owned()).spawn(move || {
            for round in 0u32.. {
                upf.ask_for_neighbours(round % ASK_ALL == ASK_ALL - 1);
                thread::park_timeout(ASK);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        })?;
        running.threads.push(asker);
        Ok(running)
    }

    fn spawn(
        &mut self,
        name: &str,
        cpu: usize,
        mut directions: Vec<Direction>,
        idle: Option<Duration>,
    ) -> std::io::Result<()> {
        let (stop, failure) = (self.stop.clone(), self.failure.clone());
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            let pinned = rustix::thread::sched_setaffinity(None, &set);
            let result = pinned
                .map_err(std::io::Error::from)
                .and_then(|()| crate::direction::run(&mut directions, idle, &stop));
            if let Err(error) = result {
                *lock(&failure) = Some(error.to_string());
            }
        })?);
        Ok(())
    }

    /// The user plane function.
    pub fn upf(&self) -> &Arc<Upf> {
        &self.upf
    }

    /// Why a direction ended, if one did.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Ends its threads, so that all that was counted is published.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It only ends by itself or by a panic, which has been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

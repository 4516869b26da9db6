//! The user plane function as control threads see it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use dray_port::{Frame, Port};
use dray_wire::ethernet::{ETHERNET_LEN, ethertype};
use dray_wire::gtpu;

use crate::compile::Context;
use crate::config::{ConfigError, Detector, UpfConfig};
use crate::counters::{Counters, Published};
use crate::direction::Direction;
use crate::event::{Event, Events, events};
use crate::interface::{Interface, lock};
use crate::model::{Draft, KEYS_PER_SESSION, Model, Operation, SessionStatus, Wire};
use crate::path::{self, Change, Downlink, Lane, Path, Sessions, Store, Uplink};
use crate::session::Peer;
use crate::usage::Way;

/// A user plane function. Its directions run on threads of their own
/// ([`Running`](crate::Running)), or wherever they
/// are polled.
pub struct Upf {
    n3: Arc<Interface>,
    n6: Arc<Interface>,
    applications: HashMap<String, Arc<Detector>>,
    sessions_max: usize,
    model: Mutex<Model>,
    /// To both directions.
    wires: Mutex<[Wire; 2]>,
    counters: [Arc<Published>; 2],
    events: Events,
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
        let [(up_wire, up), (down_wire, down)] = [Wire::new(), Wire::new()];
        let uplink = Lane::new(Way::Uplink, n3.clone(), n6.clone(), sessions(), up, teller.clone());
        let downlink = Lane::new(Way::Downlink, n6.clone(), n3.clone(), sessions(), down, teller);
        let counters = [uplink.published.clone(), downlink.published.clone()];
        let frame_max = ETHERNET_LEN + usize::from(config.n6.mtu);
        let store = Store::new(config.buffer_packets, config.buffer_per_session, frame_max);
        let mut directions = [
            Direction::new(n3_rx, Path::Uplink(Box::new(Uplink(uplink)))),
            Direction::new(n6_rx, Path::Downlink(Box::new(Downlink { lane: downlink, store }))),
        ];
        let upf = Self {
            n3,
            n6,
            applications,
            sessions_max: config.sessions_max,
            model: Mutex::new(Model::new(config.sessions_max)),
            wires: Mutex::new([up_wire, down_wire]),
            counters,
            events,
        };
        for session in config.all_sessions() {
            upf.transact(&[Operation::Add(session)], |changes| {
                for (direction, mut change) in directions.iter_mut().zip(changes) {
                    direction.path().change(&mut change);
                }
            })?;
        }
        Ok((upf, directions))
    }

    /// Makes all of `operations`, or, where one of them cannot be made, none. Each session changes as a
    /// whole while packets go on. Returns once both directions, which have to be polled meanwhile, have
    /// been told.
    pub fn apply(&self, operations: &[Operation]) -> Result<(), ConfigError> {
        let wires = lock(&self.wires);
        self.transact(operations, |changes| {
            wires.iter().zip(changes).for_each(|(wire, change)| wire.send(change));
        })
    }

    /// As [`apply`](Self::apply); `send` is handed the changes of both directions.
    fn transact(
        &self,
        operations: &[Operation],
        send: impl FnMut([Change; 2]),
    ) -> Result<(), ConfigError> {
        let mut model = lock(&self.model);
        let mut draft = Draft::default();
        let context = Context { applications: &self.applications, n3: &self.n3 };
        for operation in operations {
            model.check(&mut draft, operation, &context)?;
        }
        model.commit(draft, |peer| self.end_marker(peer), send);
        Ok(())
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
        lock(&self.model).len()
    }

    /// For how many there is room.
    pub fn sessions_max(&self) -> usize {
        self.sessions_max
    }

    /// A session, if there is such a one.
    pub fn session(&self, seid: u64) -> Option<SessionStatus> {
        lock(&self.model).status(seid)
    }

    /// All sessions, by SEID.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        lock(&self.model).statuses()
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

/// All receiving halves, and the first of the transmitting ones.
fn halves(port: Port) -> (Vec<Box<dyn dray_port::Receive>>, Box<dyn dray_port::Transmit>) {
    let tx = port.tx.into_iter().next().expect("a port has a queue");
    (port.rx, tx)
}

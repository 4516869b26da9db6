//! Load generator that also checks a user plane function: plays the gNBs and the data network at
//! once, for all sessions that a configuration generates.

mod check;
mod notice;
mod outcome;
mod packet;
mod stations;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_datapath::ArrivalClock;
use dray_port::{Batch, Frame, Port, Receive, Transmit, Wait, clock, scratch};
use dray_wire::MacAddr;
use dray_wire::gtpu::Direction::{self, Downlink, Uplink};
use serde::Serialize;

use crate::config::{ConfigError, Generator, InterfaceConfig, UpfConfig};

use check::{Checked, Checker};
use notice::Notice;
use packet::{BURST, Packets};
use stations::{Heard, Stations};

pub use outcome::Outcome;
pub use packet::{LEN_MAX, LEN_MIN};

/// Time without an arrival after which packets in flight count as lost.
const DRAIN: Duration = Duration::from_millis(500);
/// Maximum time to wait until the user plane function has replied, and resolved all its neighbours.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which the load prints what it waits for.
const SILENCE: Duration = Duration::from_secs(1);
/// Time without a solicitation after which the user plane function has received all replies. It
/// repeats its first solicitation after 50 ms, and the second after 100 ms.
const ANSWER: Duration = Duration::from_millis(150);
/// Time after a reply of the user plane function without a solicitation: it knows its neighbours.
/// It solicits one that it has heard of within half a second.
const KNOWN: Duration = Duration::from_secs(1);
/// Interval between announcements.
const ANNOUNCE: Duration = Duration::from_millis(500);

/// Settings of a load.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Packets per second in each direction; `None`: as many as possible.
    pub rate: Option<f64>,
    /// Length of the frames on N6 in bytes, [`LEN_MIN`] to [`LEN_MAX`]; frames on N3 are longer by
    /// the tunnel's headers.
    pub len: usize,
    /// Duration of the load.
    pub duration: Duration,
    /// True if packets are sent from the users to the data network.
    pub uplink: bool,
    /// True if packets are sent from the data network to the users.
    pub downlink: bool,
}

/// Outcomes of both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    /// From the users to the data network.
    pub uplink: Outcome,
    /// From the data network to the users.
    pub downlink: Outcome,
    /// Addresses of the user plane function that did not reply before the load.
    pub silent: Vec<IpAddr>,
}

/// Receives what a load has to say while it runs.
pub trait Watch {
    /// A correct packet arrived `ns` nanoseconds after it was built.
    fn latency(&mut self, direction: Direction, ns: u64);

    /// The load has waited for a second, for `what`.
    fn waiting(&mut self, what: &str);
}

/// One side of the load: the gNBs, or the data network.
struct Side {
    rx: Vec<Box<dyn Receive>>,
    /// Transmit queues, each with the packets of its sessions.
    tx: Vec<(Box<dyn Transmit>, Packets)>,
    /// Index of the queue that sends next.
    turn: usize,
    /// The gNBs, or the routers.
    stations: Stations,
    /// Replies of the stations that have not left, by the address that was asked for. They leave
    /// before any packet: a load as fast as possible leaves no room in the port for others.
    replies: BTreeMap<IpAddr, Vec<u8>>,
    /// Tick of the last announcement; 0: none.
    announced: u64,
    /// Checks the packets that this side receives.
    checker: Checker,
    /// Length of the frames on N6 in bytes.
    len: u64,
    outcome: Outcome,
    /// When the packets that this side receives arrived.
    receiving: ArrivalClock,
    /// Messages about the packets that this side has sent: error indications, and ICMP errors.
    notices: [u64; 2],
    /// Frames lost at the port before the load began.
    dropped_before: u64,
}

impl Side {
    /// Creates a side on a port of the user plane function with configuration `config`: a station
    /// `mac` with these addresses, which sends packets of direction `direction`.
    fn new(
        config: &UpfConfig,
        generator: &Generator,
        (direction, len): (Direction, usize),
        port: Port,
        mac: MacAddr,
        addresses: HashSet<IpAddr>,
    ) -> Result<Self, ConfigError> {
        let (known, back) = match direction {
            Uplink => (&config.n3, Downlink),
            Downlink => (&config.n6, Uplink),
        };
        let mut rx = port.rx;
        rx.iter_mut().for_each(|rx| rx.set_wait(Wait::Poll { pause_us: 0 }));
        let queues = port.tx.len();
        let with_packets = |(queue, tx)| {
            Ok((tx, Packets::new(config, generator, direction, (queue, queues), len, mac)?))
        };
        let tx = port.tx.into_iter().enumerate().map(with_packets);
        let mut tx = tx.collect::<Result<Vec<_>, ConfigError>>()?;
        tx.retain(|(_, packets)| packets.sessions() > 0);
        let checker = Checker::new(config, generator, back, len, mac)?;
        Ok(Self {
            rx,
            tx,
            turn: 0,
            stations: Stations::new(mac, addresses, known),
            replies: BTreeMap::new(),
            announced: 0,
            checker,
            len: len as u64,
            outcome: Outcome::default(),
            receiving: ArrivalClock::default(),
            notices: [0; 2],
            dropped_before: 0,
        })
    }

    /// Counts from zero again.
    fn restart(&mut self) -> io::Result<()> {
        self.dropped_before = self.dropped()?;
        self.outcome = Outcome::default();
        (self.receiving, self.notices) = (ArrivalClock::default(), [0; 2]);
        Ok(())
    }

    fn dropped(&self) -> io::Result<u64> {
        self.rx.iter().map(|rx| rx.dropped()).sum()
    }

    /// Returns why the user plane function cannot be reached yet, on its interface `name`.
    fn obstacle(&self, name: &str) -> Option<String> {
        if !self.tx[0].0.is_ready() {
            return Some(format!("nothing is connected at {name}"));
        }
        let mut silent: Vec<_> = self.stations.silent().map(|own| own.to_string()).collect();
        silent.sort_unstable();
        let what = format!("no reply on {name} from {}", silent.join(", "));
        (!silent.is_empty()).then_some(what)
    }

    /// Announces the stations now and then, until the user plane function knows them.
    fn announce(&mut self, now: u64) -> io::Result<()> {
        let is_due = now.saturating_sub(self.announced) >= clock::to_ticks(ANNOUNCE);
        let is_needed = self.announced == 0 || is_due && !self.is_settled(now);
        if !is_needed || !self.tx[0].0.is_ready() {
            return Ok(());
        }
        self.announced = now;
        let frames = self.stations.announcements();
        for chunk in frames.chunks(BURST) {
            let batch: Batch<'_> = chunk.iter().map(|frame| Frame::from(&frame[..])).collect();
            // Frames that the port does not take are built again the next time.
            self.tx[0].0.transmit(&batch)?;
        }
        Ok(())
    }

    /// Returns true if the user plane function has received the Ethernet addresses of all stations,
    /// or knew them.
    fn is_settled(&self, now: u64) -> bool {
        let silence = now.saturating_sub(self.stations.heard);
        let has_replied = self.stations.silent().next().is_none();
        let enough = if self.stations.are_known() { ANSWER } else { KNOWN };
        has_replied && silence >= clock::to_ticks(enough)
    }

    /// Sends up to `count` packets on the next queue; returns how many were taken.
    fn send(&mut self, count: usize) -> io::Result<usize> {
        self.reply()?;
        if !self.replies.is_empty() {
            return Ok(0);
        }
        self.turn = (self.turn + 1) % self.tx.len();
        let (tx, packets) = &mut self.tx[self.turn];
        packets.prepare(count);
        let frames = packets.ready(count);
        let batch: Batch<'_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
        let taken = tx.transmit(&batch)?;
        drop(batch);
        packets.sent(taken);
        Ok(taken)
    }

    /// Sends the replies that have not left, while the port has room.
    fn reply(&mut self) -> io::Result<()> {
        while let Some(first) = self.replies.first_entry()
            && self.tx[0].0.transmit(&[Frame::from(&first.get()[..])])? == 1
        {
            self.stations.answered(*first.key());
            first.remove();
        }
        Ok(())
    }

    /// Receives and checks frames, and replies to requests for our addresses.
    fn receive(&mut self, watch: &mut dyn Watch) -> io::Result<bool> {
        let Self { rx, stations, replies, checker, len, outcome, receiving, notices, .. } = self;
        let mut scratch = scratch();
        let mut worked = false;
        for rx in rx {
            worked |= rx.receive(&mut |frames| {
                let now = clock::ticks();
                for frame in frames {
                    let bytes = frame.bytes(&mut scratch);
                    match checker.check(bytes, outcome) {
                        Checked::Right(label) => {
                            watch.latency(checker.direction(), label.age_ns(now));
                            continue;
                        }
                        Checked::Wrong => continue,
                        Checked::Foreign => {}
                    }
                    match stations.hear(bytes) {
                        Some(Heard::Solicitation(address, reply)) => {
                            replies.insert(address, reply);
                            continue;
                        }
                        Some(Heard::Reply) => continue,
                        None => {}
                    }
                    match Notice::read(bytes) {
                        Some(notice) => notices[notice as usize] += 1,
                        None => outcome.foreign += 1,
                    }
                }
                receiving.note(now, outcome.received, outcome.received * *len);
                frames.len()
            })? > 0;
        }
        self.reply()?;
        Ok(worked)
    }
}

/// A load with its ports open.
pub struct Load {
    settings: Settings,
    gnbs: Side,
    network: Side,
}

impl Load {
    /// Creates a load for a user plane function with configuration `config`; `n3` and `n6` are
    /// ports connected to its N3 and N6.
    pub fn new(
        config: &UpfConfig,
        settings: Settings,
        n3: Port,
        n6: Port,
    ) -> Result<Self, ConfigError> {
        let missing = || ConfigError::new("give this section: the load uses generated sessions");
        let generator = config.generate.as_ref().ok_or_else(|| missing().in_field("generate"))?;
        generator.check()?;
        let macs = [MacAddr::local(0x0300), MacAddr::local(0x0600)];
        let [gnb_mac, network_mac] =
            [known_mac(&config.n3).unwrap_or(macs[0]), known_mac(&config.n6).unwrap_or(macs[1])];
        let via = |interface: &InterfaceConfig| -> HashSet<IpAddr> {
            interface.routes.iter().map(|route| route.via).collect()
        };
        let gnb_addresses = generator.gnbs.iter().copied().chain(via(&config.n3)).collect();
        let side = |direction, port, mac, addresses| {
            Side::new(config, generator, (direction, settings.len), port, mac, addresses)
        };
        let gnbs = side(Uplink, n3, gnb_mac, gnb_addresses)?;
        let network = side(Downlink, n6, network_mac, via(&config.n6))?;
        Ok(Self { settings, gnbs, network })
    }

    /// Sends and checks packets until the duration is over or `stop` is set, then waits for packets
    /// in flight.
    pub fn run(mut self, stop: &AtomicBool, watch: &mut dyn Watch) -> io::Result<LoadReport> {
        let Settings { rate, len, duration, uplink, downlink } = self.settings;
        self.settle(stop, watch)?;
        let start = clock::ticks();
        let until = start.saturating_add(clock::to_ticks(duration));
        let per_tick = rate.map(|rate| rate / clock::ticks_per_second() as f64);
        let mut sent = [0u64; 2];
        let mut sending = [ArrivalClock::default(); 2];
        loop {
            let now = clock::ticks();
            if now >= until || stop.load(Ordering::Relaxed) {
                break;
            }
            let due = per_tick.map_or(u64::MAX, |rate| ((now - start) as f64 * rate) as u64);
            let mut worked = false;
            for (index, wanted) in [uplink, downlink].into_iter().enumerate() {
                let side = if index == 0 { &mut self.gnbs } else { &mut self.network };
                let count = due.saturating_sub(sent[index]).min(BURST as u64) as usize;
                if wanted && count > 0 {
                    let taken = side.send(count)?;
                    sent[index] += taken as u64;
                    sending[index].note(now, sent[index], sent[index] * len as u64);
                    worked |= taken > 0;
                }
            }
            worked |= self.gnbs.receive(watch)? | self.network.receive(watch)?;
            if !worked {
                std::thread::yield_now();
            }
        }
        let mut last = clock::ticks();
        while clock::ticks() - last < clock::to_ticks(DRAIN) {
            if self.gnbs.receive(watch)? | self.network.receive(watch)? {
                last = clock::ticks();
            } else {
                std::thread::yield_now();
            }
        }
        // Packets sent by one side are received by the other.
        let finish = |from: &Side, to: &Side, sent: u64, sending: &ArrivalClock| {
            let [error_indications, icmp_errors] = from.notices;
            let outcome = to.outcome;
            Ok::<_, io::Error>(Outcome {
                sent,
                lost: sent.saturating_sub(outcome.received + outcome.wrong()),
                dropped: to.dropped()? - to.dropped_before,
                error_indications,
                icmp_errors,
                sending: sending.arrivals(),
                receiving: to.receiving.arrivals(),
                ..outcome
            })
        };
        let silent = self.gnbs.stations.silent().chain(self.network.stations.silent());
        let mut silent: Vec<_> = silent.collect();
        silent.sort_unstable();
        Ok(LoadReport {
            uplink: finish(&self.gnbs, &self.network, sent[0], &sending[0])?,
            downlink: finish(&self.network, &self.gnbs, sent[1], &sending[1])?,
            silent,
        })
    }

    /// Announces the stations and replies until the user plane function has resolved all
    /// neighbours, so that no packet has to wait for an unknown address.
    fn settle(&mut self, stop: &AtomicBool, watch: &mut dyn Watch) -> io::Result<()> {
        let start = clock::ticks();
        let mut silence = clock::to_ticks(SILENCE);
        let patience = clock::to_ticks(PATIENCE);
        while !stop.load(Ordering::Relaxed) {
            let now = clock::ticks();
            let waited = now - start;
            let sides = [&mut self.gnbs, &mut self.network];
            let mut is_settled = true;
            for side in sides {
                side.announce(now)?;
                side.receive(watch)?;
                is_settled &= side.is_settled(clock::ticks());
            }
            if is_settled || waited > patience {
                break;
            }
            if waited > silence {
                silence = u64::MAX;
                let obstacles = [self.gnbs.obstacle("N3"), self.network.obstacle("N6")];
                let why: Vec<_> = obstacles.into_iter().flatten().collect();
                if !why.is_empty() {
                    let (most, why) = (PATIENCE.as_secs(), why.join(", and "));
                    watch.waiting(&format!("the user plane function, at most {most} s: {why}"));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.gnbs.restart()?;
        self.network.restart()
    }
}

/// Returns the Ethernet address of the first neighbour configured in the user plane function.
fn known_mac(interface: &InterfaceConfig) -> Option<MacAddr> {
    interface.neighbours.first().map(|neighbour| neighbour.mac)
}

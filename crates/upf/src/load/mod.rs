//! Load generator that also checks a user plane function: plays the gNBs and the data network at
//! once, for all sessions that a configuration generates.

mod check;
mod packet;

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_port::{Batch, Frame, Port, Receive, Transmit, Wait, clock, scratch};
use dray_wire::MacAddr;
use dray_wire::arp::Arp;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::gtpu::Direction::{self, Downlink, Uplink};
use dray_wire::icmp::Discovery;
use dray_wire::ip::Packet;
use serde::Serialize;

use crate::config::{ConfigError, Generator, InterfaceConfig, UpfConfig};

use check::Checker;
use packet::Packets;

pub use packet::{LEN_MAX, LEN_MIN};

/// Maximum number of packets sent at a time.
const BURST: usize = 32;
/// Time without an arrival after which packets in flight count as lost.
const DRAIN: Duration = Duration::from_millis(500);
/// Maximum time to wait until the user plane function has resolved all its neighbours.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time that a reply takes to arrive.
const ANSWER: Duration = Duration::from_millis(100);

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

/// Counts of one direction's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived and were correct in every field.
    pub received: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Packets that arrived after a later one of the same session, or twice.
    pub reordered: u64,
    /// Packets with a wrong outer address, user address, or port.
    pub wrong_address: u64,
    /// Packets with a wrong TEID.
    pub wrong_teid: u64,
    /// Packets with a wrong QFI.
    pub wrong_qfi: u64,
    /// Packets with a wrong payload, length, time to live, or checksum.
    pub wrong_packet: u64,
    /// Frames that do not belong to this load.
    pub foreign: u64,
}

impl Outcome {
    /// Returns true if all packets arrived and were correct.
    pub fn is_clean(&self) -> bool {
        let Self { sent, received, .. } = *self;
        *self == Self { sent, received, ..Self::default() } && sent == received
    }
}

/// Outcomes of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    /// From the users to the data network.
    pub uplink: Outcome,
    /// From the data network to the users.
    pub downlink: Outcome,
}

/// One side of the load: the gNBs, or the data network.
struct Side {
    rx: Vec<Box<dyn Receive>>,
    /// Transmit queues, each with the packets of its sessions.
    tx: Vec<(Box<dyn Transmit>, Packets)>,
    /// Index of the queue that sends next.
    turn: usize,
    mac: MacAddr,
    /// Addresses that the user plane function may resolve.
    addresses: HashSet<IpAddr>,
    /// Addresses that it has not resolved yet.
    awaited: HashSet<IpAddr>,
    /// Checks the packets that this side receives.
    checker: Checker,
    outcome: Outcome,
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
        let mut awaited = addresses.clone();
        known.neighbours.iter().for_each(|neighbour| _ = awaited.remove(&neighbour.address));
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
        let outcome = Outcome::default();
        Ok(Self { rx, tx, turn: 0, mac, addresses, awaited, checker, outcome })
    }

    /// Sends up to `count` packets on the next queue; returns how many were taken.
    fn send(&mut self, count: usize) -> io::Result<usize> {
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

    /// Receives and checks frames, and replies to requests for our addresses.
    fn receive(&mut self) -> io::Result<bool> {
        let Self { rx, tx, mac, addresses, awaited, checker, outcome, .. } = self;
        let mut scratch = scratch();
        let mut worked = false;
        for rx in rx {
            worked |= rx.receive(&mut |frames| {
                for frame in frames {
                    let bytes = frame.bytes(&mut scratch);
                    if !checker.check(bytes, outcome) {
                        match answer(*mac, addresses, bytes) {
                            Some((address, answer)) => {
                                // If the reply is lost, the UPF asks again, so only a reply that
                                // was sent counts.
                                let answer = [Frame::from(&answer[..])];
                                if matches!(tx[0].0.transmit(&answer), Ok(1)) {
                                    awaited.remove(&address);
                                }
                            }
                            None => outcome.foreign += 1,
                        }
                    }
                }
                frames.len()
            })? > 0;
        }
        Ok(worked)
    }
}

/// Returns the reply to a request for one of `addresses`, which are all at `mac`, with that
/// address.
fn answer(mac: MacAddr, addresses: &HashSet<IpAddr>, frame: &[u8]) -> Option<(IpAddr, Vec<u8>)> {
    let asker = Ethernet::parse(frame)?;
    let bytes = &frame[ETHERNET_LEN..];
    let (address, packet) = match asker.ethertype {
        ethertype::ARP => {
            let arp = Arp::parse(bytes).filter(|arp| arp.is_request)?;
            let target = arp.target.1;
            let reply = Arp { is_request: false, sender: (mac, target), target: arp.sender };
            (target.into(), reply.to_bytes().to_vec())
        }
        ethertype::IPV6 => {
            let packet = Packet::parse(bytes, bytes.len()).ok()?;
            let Discovery::Solicitation { target, .. } = Discovery::parse(&packet, bytes)? else {
                return None;
            };
            let reply = Discovery::Advertisement { target, mac };
            (target.into(), reply.to_packet(target, packet.src.into()))
        }
        _ => return None,
    };
    addresses.contains(&address).then_some(())?;
    let mut header = [0; ETHERNET_LEN];
    Ethernet { dst: asker.src, src: mac, ethertype: asker.ethertype }.write(&mut header);
    Some((address, [&header[..], &packet].concat()))
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
    pub fn run(mut self, stop: &AtomicBool) -> io::Result<LoadReport> {
        let Settings { rate, duration, uplink, downlink, .. } = self.settings;
        self.settle(stop)?;
        let start = clock::ticks();
        let until = start.saturating_add(clock::to_ticks(duration));
        let per_tick = rate.map(|rate| rate / clock::ticks_per_second() as f64);
        let mut sent = [0u64; 2];
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
                    worked |= taken > 0;
                }
            }
            worked |= self.gnbs.receive()? | self.network.receive()?;
            if !worked {
                std::thread::yield_now();
            }
        }
        let mut last = clock::ticks();
        while clock::ticks() - last < clock::to_ticks(DRAIN) {
            if self.gnbs.receive()? | self.network.receive()? {
                last = clock::ticks();
            } else {
                std::thread::yield_now();
            }
        }
        let finish = |mut outcome: Outcome, sent| {
            outcome.sent = sent;
            outcome.lost = sent.saturating_sub(outcome.received + outcome.wrong());
            outcome
        };
        // Packets sent by one side are received by the other.
        Ok(LoadReport {
            uplink: finish(self.network.outcome, sent[0]),
            downlink: finish(self.gnbs.outcome, sent[1]),
        })
    }

    /// Replies until the user plane function has resolved all neighbours, so that no packet is lost
    /// for an unknown address.
    fn settle(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let start = clock::ticks();
        let mut last = start;
        let (patience, answer) = (clock::to_ticks(PATIENCE), clock::to_ticks(ANSWER));
        while clock::ticks() - last < answer && !stop.load(Ordering::Relaxed) {
            self.gnbs.receive()?;
            self.network.receive()?;
            let asked = self.gnbs.awaited.is_empty() && self.network.awaited.is_empty();
            if !asked && clock::ticks() - start < patience {
                last = clock::ticks();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.gnbs.outcome = Outcome::default();
        self.network.outcome = Outcome::default();
        Ok(())
    }
}

impl Outcome {
    fn wrong(&self) -> u64 {
        self.wrong_address + self.wrong_teid + self.wrong_qfi + self.wrong_packet + self.reordered
    }
}

/// Returns the Ethernet address of the first neighbour configured in the user plane function.
fn known_mac(interface: &InterfaceConfig) -> Option<MacAddr> {
    interface.neighbours.first().map(|neighbour| neighbour.mac)
}

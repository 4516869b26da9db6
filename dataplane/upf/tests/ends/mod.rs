//! Shared test helpers: a user plane function between ports in memory, and packets built by hand.
#![allow(dead_code, unreachable_pub, reason = "each test program uses only a part")]

pub mod craft;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dray_port::memory::Peer;
use dray_upf::config::SessionConfig;
use dray_upf::{ConfigError, Counters, DropReason, Upf, UpfConfig, Worker};
use dray_wire::MacAddr;
use dray_wire::ethernet::Ethernet;
use dray_wire::gtpu::{self, Container};
use dray_wire::ip::{self, Packet};
use etherparse::PacketBuilder;

pub const N3_MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 1]);
pub const N6_MAC: MacAddr = MacAddr([2, 0, 0, 0, 6, 1]);
pub const GNB_MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 2]);
pub const DN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 6, 2]);

/// Interfaces and neighbours, to which tests append sessions. The gNB sends from both its
/// addresses.
pub const INTERFACES: &str = r#"
sessions_max = 64
n3 = { mac = "02:00:00:00:03:01", gnbs = ["10.0.3.2", "fd00:3::2"], addresses = ["10.0.3.1", "fd00:3::1"], neighbours = [
    { address = "10.0.3.2", mac = "02:00:00:00:03:02" },
    { address = "fd00:3::2", mac = "02:00:00:00:03:02" } ] }
n6 = { mac = "02:00:00:00:06:01", addresses = ["10.0.6.1", "fd00:6::1"], routes = [
    { to = "0.0.0.0/0", via = "10.0.6.2" }, { to = "2001:db8::/32", via = "fd00:6::2" } ],
    neighbours = [ { address = "10.0.6.2", mac = "02:00:00:00:06:02" },
    { address = "fd00:6::2", mac = "02:00:00:00:06:02" } ] }
"#;

pub struct Ends {
    pub n3: Peer,
    pub n6: Peer,
    pub upf: Arc<Upf>,
    pub workers: [Worker; 2],
}

impl Ends {
    /// Creates a user plane function with [`INTERFACES`] and `sessions`.
    pub fn new(sessions: &str) -> Self {
        Self::try_new(&format!("{INTERFACES}{sessions}")).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_new(text: &str) -> Result<Self, ConfigError> {
        let (n3, n6) = (Peer::default(), Peer::default());
        let config = UpfConfig::from_toml(text)?;
        let (upf, workers) = Upf::new(&config, n3.port(), n6.port())?;
        Ok(Self { n3, n6, upf: Arc::new(upf), workers })
    }

    /// Polls both directions until there is nothing to do.
    pub fn run(&mut self) {
        for worker in &mut self.workers {
            while worker.poll().unwrap() {}
            worker.publish();
        }
        [self.upf.uplink(), self.upf.downlink()].iter().for_each(assert_adds_up);
    }

    /// Sends frames to N3, and returns what leaves at N6.
    pub fn up(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
        self.n3.send(frames);
        self.run();
        self.n6.received()
    }

    /// Sends frames to N6, and returns what leaves at N3.
    pub fn down(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
        self.n6.send(frames);
        self.run();
        self.n3.received()
    }

    /// Checks that packets were dropped only for these reasons.
    #[track_caller]
    pub fn assert_drops(&self, counters: &Counters, expected: &[(DropReason, u64)]) {
        assert_eq!(counters.drops.iter().collect::<Vec<_>>(), expected);
    }
}

/// Checks that every frame that arrived is accounted for.
#[track_caller]
pub fn assert_adds_up(counters: &Counters) {
    let Counters { rx_packets, tx_packets, buffered, consumed, drops, .. } = counters;
    let sum = tx_packets + buffered + consumed + drops.total();
    assert_eq!(*rx_packets, sum, "{counters:?}");
}

/// Builds a UDP packet.
pub fn udp(src: &str, dst: &str, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let builder = match (src.parse().unwrap(), dst.parse().unwrap()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => PacketBuilder::ipv4(src.octets(), dst.octets(), 64),
        (IpAddr::V6(src), IpAddr::V6(dst)) => PacketBuilder::ipv6(src.octets(), dst.octets(), 64),
        _ => panic!("two versions"),
    };
    let mut bytes = Vec::new();
    builder.udp(ports.0, ports.1).write(&mut bytes, payload).unwrap();
    bytes
}

/// Puts a packet into an Ethernet frame.
pub fn frame(src: MacAddr, dst: MacAddr, packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let mut header = [0; 14];
    Ethernet { src, dst, ethertype }.write(&mut header);
    [&header, packet].concat()
}

/// Puts a packet from the data network into a frame.
pub fn from_dn(packet: &[u8]) -> Vec<u8> {
    frame(DN_MAC, N6_MAC, packet)
}

/// Puts a GTP-U message from the gNB into a frame.
pub fn message_from_gnb(message: &[u8]) -> Vec<u8> {
    frame(GNB_MAC, N3_MAC, &udp("10.0.3.2", "10.0.3.1", (40000, gtpu::PORT), message))
}

/// Puts a user's packet into a tunnel from the gNB.
pub fn from_gnb(teid: u32, qfi: Option<u8>, packet: &[u8]) -> Vec<u8> {
    let container = qfi.map(|qfi| Container {
        direction: gtpu::Direction::Uplink,
        qfi,
        reflective: false,
        paging_policy: None,
    });
    let mut header = [0; 16];
    let len = gtpu::write_gpdu(&mut header, teid, container, packet.len());
    message_from_gnb(&[&header[..len], packet].concat())
}

/// Parses a frame to the gNB: returns the tunnel's outer packet, the message's header, and the
/// user's packet. Checks every checksum.
pub fn to_gnb(frame: &[u8]) -> (Packet, gtpu::Header, Vec<u8>) {
    let ethernet = Ethernet::parse(frame).unwrap();
    assert_eq!((ethernet.src, ethernet.dst), (N3_MAC, GNB_MAC));
    let outer = Packet::parse(&frame[14..], frame.len() - 14).unwrap();
    assert_eq!(outer.len, frame.len() - 14, "frame longer than its packet");
    let (src_port, dst_port) = outer.ports.unwrap();
    assert!(dst_port == 2152 && (src_port == 2152 || src_port >= 49152), "{src_port}");
    let udp = &frame[14 + outer.header_len..];
    if outer.version == ip::Version::V6 {
        let (src, dst) = (ip::address(outer.src), ip::address(outer.dst));
        assert_eq!(ip::upper_checksum(src, dst, 17, &[udp]), 0);
    }
    let message = &udp[8..];
    assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
    let header = gtpu::Header::parse(message, message.len()).unwrap();
    assert_eq!(header.len + header.payload_len, message.len());
    (outer, header, message[header.len..].to_vec())
}

/// Returns the packet as a router forwards it, with its time to live reduced by one.
pub fn routed(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let version = if packet[0] >> 4 == 4 { ip::Version::V4 } else { ip::Version::V6 };
    ip::decrement_ttl(&mut packet, version);
    packet
}

/// Returns a packet as the frame that leaves for the data network.
pub fn to_dn(packet: &[u8]) -> Vec<u8> {
    frame(N6_MAC, DN_MAC, &routed(packet))
}

/// Returns a session with one rule in each direction, user 10.45.0.SEID and 2001:db8:SEID::/64,
/// tunnels SEID and 1000 + SEID.
pub fn plain_session(seid: u8) -> String {
    format!(
        r#"
[[sessions]]
seid = {seid}
ue = ["{}", "2001:db8:{seid}::/64"]
pdrs = [ {{ id = 1, precedence = 255, from = "access", teid = {seid}, far = 1 }},
         {{ id = 2, precedence = 255, from = "core", far = 2, qers = [1] }} ]
fars = [ {{ id = 1, action = "forward" }},
         {{ id = 2, action = "forward", tunnel = {{ gnb = "10.0.3.2", teid = 100{seid} }} }} ]
qers = [ {{ id = 1, qfi = 9 }} ]
"#,
        Ipv4Addr::new(10, 45, 0, seid)
    )
}

/// Returns [`plain_session`] parsed.
pub fn session(seid: u8) -> SessionConfig {
    session_of(&plain_session(seid))
}

/// Parses `text` and returns its first session.
pub fn session_of(text: &str) -> SessionConfig {
    let config = UpfConfig::from_toml(&format!("{INTERFACES}{text}")).unwrap();
    config.all_sessions().next().unwrap()
}

/// Threads that poll both directions until this is dropped.
pub struct Threads(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

impl Threads {
    pub fn of(ends: Ends) -> Self {
        Self::of_workers(ends.workers)
    }

    pub fn of_workers(workers: impl IntoIterator<Item = Worker>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let threads = workers.into_iter().map(|mut worker| {
            let stop = stop.clone();
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if !worker.poll().unwrap() {
                        thread::yield_now();
                    }
                    worker.publish();
                }
            })
        });
        Self(stop.clone(), threads.collect())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

//! The stations that a side of the load plays: their announcements, their replies, and what the
//! user plane function has said to them.

use std::collections::HashSet;
use std::net::IpAddr;

use dray_port::clock;
use dray_wire::MacAddr;
use dray_wire::arp::Arp;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::icmp::{self, Discovery};
use dray_wire::ip::Packet;

use crate::config::InterfaceConfig;

const BROADCAST: MacAddr = MacAddr([0xff; 6]);
const UNKNOWN: MacAddr = MacAddr([0; 6]);

/// Meaning of a frame of the user plane function to the stations.
pub(super) enum Heard {
    /// It asks for the address of a station, to which this frame is the reply.
    Solicitation(IpAddr, Vec<u8>),
    /// It replies to a station.
    Reply,
}

/// Stations at one interface of the user plane function.
pub(super) struct Stations {
    pub(super) mac: MacAddr,
    addresses: HashSet<IpAddr>,
    /// Addresses that the user plane function has not asked for yet, and that are not configured
    /// there.
    awaited: HashSet<IpAddr>,
    /// Addresses of the UPF, as far as a station has one of their version.
    upf: Vec<IpAddr>,
    /// Addresses of the UPF that have not replied yet.
    silent: HashSet<IpAddr>,
    /// Tick of the last solicitation that was answered, or of the last reply of the user plane
    /// function.
    pub(super) heard: u64,
}

impl Stations {
    /// Creates stations with one Ethernet address at the interface `upf`.
    pub(super) fn new(mac: MacAddr, addresses: HashSet<IpAddr>, upf: &InterfaceConfig) -> Self {
        let mut awaited = addresses.clone();
        upf.neighbours.iter().for_each(|neighbour| _ = awaited.remove(&neighbour.address));
        let has_version = |own: &&IpAddr| addresses.iter().any(|it| it.is_ipv4() == own.is_ipv4());
        let upf: Vec<_> = upf.addresses.iter().filter(has_version).copied().collect();
        let silent = upf.iter().copied().collect();
        Self { mac, addresses, awaited, upf, silent, heard: 0 }
    }

    /// Returns the addresses of the user plane function that have not replied.
    pub(super) fn silent(&self) -> impl Iterator<Item = IpAddr> {
        self.silent.iter().copied()
    }

    /// Returns true if the user plane function has asked for all stations.
    pub(super) fn are_known(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Returns frames that announce all stations: ARP announcements (RFC 5227, section 2.3) and
    /// unsolicited neighbour advertisements (RFC 4861, section 7.2.6); and frames that ask for the
    /// addresses of the user plane function that have not replied.
    pub(super) fn announcements(&self) -> Vec<Vec<u8>> {
        let announcements = self.addresses.iter().map(|address| match *address {
            IpAddr::V4(_) => self.solicitation(*address, *address),
            IpAddr::V6(target) => {
                let (group, mac) = icmp::ALL_NODES;
                let packet =
                    Discovery::Advertisement { target, mac: self.mac }.to_packet(target, group);
                self.frame(mac, ethertype::IPV6, &packet)
            }
        });
        let solicitations =
            self.upf.iter().filter(|own| self.silent.contains(own)).filter_map(|own| {
                let station = self.addresses.iter().find(|it| it.is_ipv4() == own.is_ipv4())?;
                Some(self.solicitation(*station, *own))
            });
        announcements.chain(solicitations).collect()
    }

    /// Returns a frame in which the station `own` asks for `target`, of the same version.
    fn solicitation(&self, own: IpAddr, target: IpAddr) -> Vec<u8> {
        match (own, target) {
            (IpAddr::V6(own), IpAddr::V6(target)) => {
                let (group, mac) = icmp::solicited_node(target);
                let source = Some(self.mac);
                let packet = Discovery::Solicitation { target, source }.to_packet(own, group);
                self.frame(mac, ethertype::IPV6, &packet)
            }
            (IpAddr::V4(own), IpAddr::V4(target)) => {
                let arp =
                    Arp { is_request: true, sender: (self.mac, own), target: (UNKNOWN, target) };
                self.frame(BROADCAST, ethertype::ARP, &arp.to_bytes())
            }
            _ => unreachable!("a station asks for addresses of its own version"),
        }
    }

    fn frame(&self, dst: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut header = [0; ETHERNET_LEN];
        Ethernet { dst, src: self.mac, ethertype }.write(&mut header);
        [&header, packet].concat()
    }

    /// Returns what a frame means to the stations; `None` if it is neither ARP nor neighbour
    /// discovery, or does not concern them.
    pub(super) fn hear(&mut self, frame: &[u8]) -> Option<Heard> {
        let from = Ethernet::parse(frame)?;
        let bytes = &frame[ETHERNET_LEN..];
        let (asked, packet) = match from.ethertype {
            ethertype::ARP => {
                let arp = Arp::parse(bytes)?;
                let target = arp.target.1;
                if !arp.is_request {
                    return self.replied(arp.sender.1.into(), target.into());
                }
                let reply =
                    Arp { is_request: false, sender: (self.mac, target), target: arp.sender };
                (target.into(), reply.to_bytes().to_vec())
            }
            ethertype::IPV6 => {
                let packet = Packet::parse(bytes, bytes.len()).ok()?;
                match Discovery::parse(&packet, bytes)? {
                    Discovery::Solicitation { target, .. } => {
                        let reply = Discovery::Advertisement { target, mac: self.mac };
                        (target.into(), reply.to_packet(target, packet.src.into()))
                    }
                    Discovery::Advertisement { target, .. } => {
                        return self.replied(target.into(), packet.destination());
                    }
                }
            }
            _ => return None,
        };
        self.addresses.contains(&asked).then_some(())?;
        Some(Heard::Solicitation(asked, self.frame(from.src, from.ethertype, &packet)))
    }

    /// Notes a reply of the user plane function about its own address.
    fn replied(&mut self, own: IpAddr, to: IpAddr) -> Option<Heard> {
        (self.upf.contains(&own) && self.addresses.contains(&to)).then_some(())?;
        if self.silent.remove(&own) {
            self.heard = clock::ticks();
        }
        Some(Heard::Reply)
    }

    /// Notes that the user plane function has been sent the Ethernet address of a station.
    pub(super) fn answered(&mut self, address: IpAddr) {
        self.awaited.remove(&address);
        self.heard = clock::ticks();
    }
}

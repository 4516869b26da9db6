//! N3 or N6 at run time: its own addresses, routes and neighbours, and the port to transmit on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dray_capture::{Kind, Tap};
use dray_datapath::TransmitQueues;
use dray_port::{Batch, Frame, Loss, Transmit};
use dray_wire::arp::Arp;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::icmp::{self, Discovery};
use dray_wire::{MacAddr, ip};

use crate::config::{ConfigError, InterfaceConfig, Prefix};
use crate::counters::{Counters, DropReason, Sent};
use crate::neighbours::{HOPS_MAX, Neighbours, Solicitation};

/// An interface. Data threads only read it; only the Ethernet addresses of neighbours change.
pub(crate) struct Interface {
    /// Number of the interface in captures.
    number: u16,
    pub(crate) mac: MacAddr,
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
    /// The addresses of both interfaces.
    ours: Vec<IpAddr>,
    /// The IPv4 addresses of `ours`; 0 if absent.
    all_v4: [u32; 2],
    all_v6: [u128; 2],
    /// A bit for each first octet of IPv4 addresses that contains martian addresses.
    suspects_v4: [u64; 4],
    /// Maximum length of transmitted IP packets (MTU), in bytes.
    pub(crate) mtu: usize,
    /// Destinations with the number of their next hop, longest prefixes first.
    routes: Vec<(Prefix, u16)>,
    gateways: Vec<(Prefix, IpAddr)>,
    pub(crate) neighbours: Neighbours,
    /// Networks of gNBs that may send into any session's tunnel.
    gnbs: Vec<Prefix>,
    tx: TransmitQueues,
    /// True if the interface's addresses have been announced to the peer.
    announced: AtomicBool,
}

/// Checks addresses and MTU; the port transmits frames of up to `frame_max` bytes.
fn check(name: &str, config: &InterfaceConfig, frame_max: usize) -> Result<(), ConfigError> {
    let is_host = |address: &IpAddr| !address.is_unspecified() && !address.is_multicast();
    if let Some(address) = config.addresses.iter().find(|address| !is_host(address)) {
        return Err(wrong(name, "addresses", format!("{address}: give a host's address")));
    }
    if !matches!(config.addresses[..], [_])
        && !matches!(config.addresses[..], [a, b] if a.is_ipv4() != b.is_ipv4())
    {
        let what = "give one IPv4 address, one IPv6 address, or one of each";
        return Err(wrong(name, "addresses", what));
    }
    if !config.mac.is_station() {
        return Err(wrong(name, "mac", format!("{}: give a station's address", config.mac)));
    }
    let most = frame_max - ETHERNET_LEN;
    if !(576..=most).contains(&config.mtu.into()) {
        let what = format!("{}: give 576 to {most}, as the port allows", config.mtu);
        return Err(wrong(name, "mtu", what));
    }
    Ok(())
}

/// Returns an error about the configuration of interface `name`.
fn wrong(name: &str, field: &str, what: impl Into<String>) -> ConfigError {
    ConfigError::new(what).in_field(format!("{name}.{field}"))
}

impl Interface {
    /// Creates an interface. `name` is used in error messages, `number` in captures; `ours` are the
    /// addresses of both interfaces.
    pub(crate) fn new(
        (name, number): (&str, u16),
        config: &InterfaceConfig,
        ours: Vec<IpAddr>,
        tx: Vec<Box<dyn Transmit>>,
    ) -> Result<Self, ConfigError> {
        let tx = TransmitQueues::new(tx);
        check(name, config, tx.frame_max())?;
        let numbers = |v6: bool| {
            let of_version = ours.iter().filter(move |address| address.is_ipv6() == v6);
            let mut numbers = of_version.map(|address| ip::number(*address));
            // Each of the two interfaces has at most one address of each version.
            [(); 2].map(|()| numbers.next().unwrap_or_default())
        };
        let (all_v4, all_v6) = (numbers(false).map(|number| number as u32), numbers(true));
        let mut suspects_v4 = [0; 4];
        let all_octets = [0, 127, 169].into_iter().chain(224..=255);
        for octet in all_octets.chain(all_v4.map(|address| address >> 24)) {
            suspects_v4[octet as usize / 64] |= 1 << (octet % 64);
        }
        let mut interface = Self {
            number,
            mac: config.mac,
            announced: AtomicBool::new(false),
            v4: config.addresses.iter().find_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            }),
            v6: config.addresses.iter().find_map(|address| match address {
                IpAddr::V6(address) => Some(*address),
                IpAddr::V4(_) => None,
            }),
            ours,
            all_v4,
            all_v6,
            suspects_v4,
            mtu: config.mtu.into(),
            routes: Vec::new(),
            gateways: config.routes.iter().map(|route| (route.to, route.via)).collect(),
            neighbours: Neighbours::new()
                .map_err(|error| ConfigError::new(format!("memory: {error}")))?,
            gnbs: config.gnbs.clone(),
            tx,
        };
        interface.gateways.sort_by_key(|(to, _)| std::cmp::Reverse(to.bits()));
        for (to, via) in interface.gateways.clone() {
            let full =
                || wrong(name, "routes", format!("at most {HOPS_MAX} neighbours are allowed"));
            let hop = interface.neighbours.number(via).ok_or_else(full)?;
            interface.neighbours.add_user(hop);
            interface.routes.push((to, hop));
        }
        for neighbour in &config.neighbours {
            let full = || wrong(name, "neighbours", format!("at most {HOPS_MAX} are allowed"));
            let hop = interface.neighbours.number(neighbour.address).ok_or_else(full)?;
            interface.neighbours.configure(hop, neighbour.mac);
        }
        Ok(interface)
    }

    /// Returns the interface's own address of the same version as `peer`.
    pub(crate) fn address_for(&self, peer: IpAddr) -> Option<IpAddr> {
        match peer {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }

    /// Returns true if a gNB at `address` may send into the tunnels of any session.
    pub(crate) fn is_trusted_gnb(&self, address: u128) -> bool {
        self.gnbs.iter().any(|network| network.contains(address))
    }

    /// Returns true if no packet is forwarded from or to `address`: it does not belong to a single
    /// host, it is valid on one link only (RFC 3927, section 2.7; RFC 4291, section 2.5.6), or it
    /// is one of our own.
    #[inline(always)]
    pub(crate) fn is_martian(&self, version: ip::Version, address: u128) -> bool {
        match version {
            ip::Version::V4 => {
                let octet = (address as u32) >> 24;
                let is_suspect = self.suspects_v4[octet as usize / 64] >> (octet % 64) & 1 != 0;
                is_suspect && self.is_martian_v4(address as u32)
            }
            ip::Version::V6 => {
                let first = (address >> 112) as u16;
                let is_odd = address >> 64 == 0 || first >> 8 == 0xff || first & 0xffc0 == 0xfe80;
                is_odd | (address == self.all_v6[0]) | (address == self.all_v6[1])
            }
        }
    }

    #[inline(never)]
    fn is_martian_v4(&self, address: u32) -> bool {
        let is_odd = matches!(address >> 24, 0 | 127 | 224..) || address >> 16 == 0xa9fe;
        is_odd | (address == self.all_v4[0]) | (address == self.all_v4[1])
    }

    /// Returns the reason to drop a packet to a [martian](Self::is_martian) address.
    #[cold]
    pub(crate) fn martian_destination(&self, address: IpAddr) -> DropReason {
        // Link-local addresses and groups of link-local scope (RFC 4291, sections 2.5.6 and 2.7;
        // RFC 3927).
        let is_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => {
                let first = address.segments()[0];
                address.is_unicast_link_local() || address.is_multicast() && first & 0xf <= 2
            }
        };
        if self.ours.contains(&address) {
            DropReason::OwnAddress
        } else if is_local {
            DropReason::LinkLocal
        } else if ip::is_group(address) {
            DropReason::Group
        } else {
            DropReason::MartianDestination
        }
    }

    /// Returns true if the address ([`ip::number`]) is the interface's own.
    #[inline(always)]
    pub(crate) fn is_own(&self, address: u128) -> bool {
        match ip::as_ipv4(address) {
            Some(address) => self.v4 == Some(address),
            None => self.v6.is_some_and(|own| u128::from(own) == address),
        }
    }

    /// Returns true if `mac` belongs to a single station other than this one, so that a reply may
    /// go there.
    pub(crate) fn is_other_station(&self, mac: MacAddr) -> bool {
        mac.is_station() && mac != self.mac
    }

    /// Returns true if `address` belongs to a single host other than this one, so that a reply may
    /// go there.
    pub(crate) fn is_other_host(&self, address: IpAddr) -> bool {
        ip::is_host(address) && !self.ours.contains(&address)
    }

    /// Returns the number of the next hop to `peer`; `None` if there are too many hops.
    pub(crate) fn hop_to(&self, peer: IpAddr) -> Option<u16> {
        let number = ip::number(peer);
        let same = |via: &IpAddr| via.is_ipv4() == peer.is_ipv4();
        let route = self.gateways.iter().find(|(to, via)| to.contains(number) && same(via));
        self.neighbours.number(route.map_or(peer, |(_, via)| *via))
    }

    /// Returns the next hop to the address ([`ip::number`]), if there is a route.
    #[inline(always)]
    pub(crate) fn route(&self, address: u128) -> Option<u16> {
        self.routes.iter().find(|(to, _)| to.contains(address)).map(|(_, hop)| *hop)
    }

    /// Returns the Ethernet address of a hop, if it is known.
    #[inline(always)]
    pub(crate) fn mac_of(&self, hop: u16) -> Option<MacAddr> {
        self.neighbours.mac_of(hop)
    }

    /// Returns true if a hop has not replied to repeated solicitations.
    pub(crate) fn is_silent(&self, hop: u16) -> bool {
        self.neighbours.is_silent(hop)
    }

    /// Sends a solicitation on the queue of a worker.
    #[cold]
    pub(crate) fn solicit(
        &self,
        (address, mac): Solicitation,
        (worker, tap): (usize, &Tap),
        counters: &mut Counters,
    ) {
        let Some(solicitation) = self.solicitation(address, mac) else { return };
        let sent = self.transmit(tap, worker, &[Frame::from(&solicitation[..])]);
        counters.made(1, sent);
        // Without a peer, a neighbour may well count as silent.
        if sent.taken == 0 && self.is_ready(worker) {
            self.neighbours.withdraw(address);
        }
    }

    /// Solicits a silent neighbour soon if a received frame, which begins with `frame`, is an IP
    /// packet from its address. Returns true if it may be from one.
    pub(crate) fn note_source(&self, frame: &[u8]) -> bool {
        let Some(ethernet) = Ethernet::parse(frame) else { return false };
        let bytes = &frame[ETHERNET_LEN..];
        let source = match ethernet.ethertype {
            ethertype::IPV4 => {
                bytes.get(12..16).and_then(<[u8]>::first_chunk::<4>).map(|ip| IpAddr::from(*ip))
            }
            ethertype::IPV6 => {
                bytes.get(8..24).and_then(<[u8]>::first_chunk::<16>).map(|ip| IpAddr::from(*ip))
            }
            _ => None,
        };
        let source = source
            .filter(|source| ethernet.dst == self.mac && self.neighbours.may_be_silent(*source));
        source.inspect(|source| self.neighbours.solicit_mentioned(*source)).is_some()
    }

    /// Announces the interface's own addresses as soon as a peer is connected, and solicits all
    /// neighbours that have not replied. A learning switch would otherwise flood all frames to an
    /// address that has only ever received. Returns true if a peer has connected since the last
    /// call.
    pub(crate) fn announce(&self, tap: &Tap, counters: &mut Counters) -> bool {
        let mut transmit_all = || {
            let frames = self.announcements();
            let frames: Batch<'_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
            let sent = self.transmit(tap, 0, &frames);
            counters.made(frames.len(), sent);
            sent.taken == frames.len()
        };
        let before = self.announced.load(Relaxed);
        let done = self.is_ready(0) && (before || transmit_all());
        self.announced.store(done, Relaxed);
        let has_connected = done && !before;
        if has_connected {
            self.neighbours.restart();
        }
        has_connected
    }

    /// Returns the announcements of the interface's own addresses: an ARP announcement (RFC 5227,
    /// section 2.3) and an unsolicited neighbour advertisement (RFC 4861, section 7.2.6).
    fn announcements(&self) -> Vec<Vec<u8>> {
        let v4 = self.v4.and_then(|own| self.solicitation(own.into(), None));
        let v6 = self.v6.map(|target| {
            let (group, mac) = icmp::ALL_NODES;
            let packet =
                Discovery::Advertisement { target, mac: self.mac }.to_packet(target, group);
            self.frame(mac, ethertype::IPV6, &packet)
        });
        v4.into_iter().chain(v6).collect()
    }

    /// Returns the frame of a solicitation for `address`, sent to the whole link or to the station
    /// that is known to have it.
    fn solicitation(&self, address: IpAddr, known: Option<MacAddr>) -> Option<Vec<u8>> {
        match address {
            IpAddr::V4(address) => {
                let arp = Arp {
                    is_request: true,
                    sender: (self.mac, self.v4?),
                    target: (MacAddr([0; 6]), address),
                };
                let mac = known.unwrap_or(MacAddr([0xff; 6]));
                Some(self.frame(mac, ethertype::ARP, &arp.to_bytes()))
            }
            IpAddr::V6(target) => {
                let group = icmp::solicited_node(target);
                let (dst, mac) = known.map_or(group, |known| (target, known));
                let source = Some(self.mac);
                let packet = Discovery::Solicitation { target, source }.to_packet(self.v6?, dst);
                Some(self.frame(mac, ethertype::IPV6, &packet))
            }
        }
    }

    /// Processes an ARP message; returns the reply, if one is due, or the reason to refuse the
    /// message.
    pub(crate) fn process_arp(&self, message: &[u8]) -> Result<Option<Vec<u8>>, DropReason> {
        let arp = Arp::parse(message).ok_or(DropReason::InvalidMessage)?;
        let ((mac, address), target) = (arp.sender, arp.target.1);
        // A host that probes whether an address is free has none yet (RFC 5227, section 2.1.1).
        let is_probe = arp.is_request && address.is_unspecified();
        if !self.is_other_station(mac) || !(is_probe || self.is_other_host(address.into())) {
            return Err(DropReason::MartianSource);
        }
        if !ip::is_host(target.into()) {
            return Err(DropReason::MartianDestination);
        }
        if !arp.is_request && self.v4 == Some(target) {
            return self.neighbours.process_reply(address.into(), mac).map(|()| None);
        }
        self.neighbours.solicit_mentioned(address.into());
        if !arp.is_request || self.v4 != Some(target) {
            return Ok(None);
        }
        let reply = Arp { is_request: false, sender: (self.mac, target), target: arp.sender };
        Ok(Some(self.frame(mac, ethertype::ARP, &reply.to_bytes())))
    }

    /// Processes a packet to one of our own addresses or to a group; returns the reply, if one is
    /// due, or the reason to refuse the packet.
    pub(crate) fn process_ip(
        &self,
        ethernet: &Ethernet,
        packet: &ip::Packet,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>, DropReason> {
        let (src, dst) = (packet.source(), packet.destination());
        if !ip::is_host(dst) && !ip::is_group(dst) {
            return Err(DropReason::MartianDestination);
        }
        // A host without an address yet may send such messages, too (RFC 3590, section 4).
        if icmp::is_of_link(packet, bytes) && (self.is_other_host(src) || src.is_unspecified()) {
            return Ok(None);
        }
        let is_discovery = Discovery::is_in(packet, bytes);
        if !(self.is_other_host(src) || is_discovery && src.is_unspecified()) {
            return Err(DropReason::MartianSource);
        }
        match (ip::is_group(dst), ethernet.dst == self.mac) {
            (true, _) if is_discovery => {}
            // A packet to one host in a group frame is discarded (RFC 1122, section 3.3.6).
            (true, _) | (false, false) => return Err(DropReason::Group),
            (false, true) if !self.is_own(packet.dst) => return Err(DropReason::OtherHost),
            (false, true) => {}
        }
        if is_discovery {
            let message = Discovery::parse(packet, bytes).ok_or(DropReason::InvalidMessage)?;
            return self.process_discovery(ethernet.src, packet, message);
        }
        let reply = icmp::echo_reply(packet, bytes).ok_or(DropReason::NotForUs)?;
        Ok(Some(self.frame(ethernet.src, ethernet.ethertype, &reply)))
    }

    /// Processes a neighbour discovery message that `from` sent.
    fn process_discovery(
        &self,
        from: MacAddr,
        packet: &ip::Packet,
        message: Discovery,
    ) -> Result<Option<Vec<u8>>, DropReason> {
        let asker = Ipv6Addr::from(packet.src);
        let (target, mac) = match message {
            Discovery::Advertisement { target, mac } => (target, mac),
            Discovery::Solicitation { target, source } => (target, source.unwrap_or(from)),
        };
        if !self.is_other_station(mac) {
            return Err(DropReason::MartianSource);
        }
        if !ip::is_host(target.into()) {
            return Err(DropReason::MartianDestination);
        }
        match message {
            Discovery::Advertisement { .. } if self.is_own(packet.dst) => {
                return self.neighbours.process_reply(target.into(), mac).map(|()| None);
            }
            // Sent to the whole link, so it replies to no solicitation of ours.
            Discovery::Advertisement { .. } => {
                self.neighbours.solicit_mentioned(target.into());
                return Ok(None);
            }
            Discovery::Solicitation { .. } => self.neighbours.solicit_mentioned(asker.into()),
        }
        if self.v6 != Some(target) || asker.is_unspecified() {
            return Ok(None);
        }
        let reply = Discovery::Advertisement { target, mac: self.mac }.to_packet(target, asker);
        Ok(Some(self.frame(mac, ethertype::IPV6, &reply)))
    }

    /// Returns a frame from this interface.
    pub(crate) fn frame(&self, dst: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut header = [0; ETHERNET_LEN];
        Ethernet { dst, src: self.mac, ethertype }.write(&mut header);
        [&header, packet].concat()
    }

    /// Transmits `frames` for a worker. A port that fails takes none. `tap` is that of the calling
    /// thread.
    #[inline]
    pub(crate) fn transmit(&self, tap: &Tap, worker: usize, frames: &[Frame<'_>]) -> Sent {
        let mut tx = self.tx.of(worker);
        let taken = tx.transmit(frames).unwrap_or(0).min(frames.len());
        let mut sent = Sent { taken, ..Sent::default() };
        tx.lost().each_run(&frames[..taken], |frames, lost| match lost {
            None => self.show(tap, Kind::Out, frames),
            Some(loss) => {
                sent.lost += frames.len();
                sent.too_long += if loss == Loss::TooLong { frames.len() } else { 0 };
            }
        });
        sent
    }

    /// Shows frames to captures.
    #[inline]
    pub(crate) fn show(&self, tap: &Tap, kind: Kind, frames: &[Frame<'_>]) {
        if tap.is_on() {
            tap.show(self.number, kind, frames);
        }
    }

    /// Returns true if a peer is connected that takes what a worker transmits.
    pub(crate) fn is_ready(&self, worker: usize) -> bool {
        self.tx.of(worker).is_ready()
    }
}

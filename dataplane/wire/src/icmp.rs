//! ICMP and ICMPv6 (RFC 792, RFC 4443), as far as a router sends it, and neighbour discovery (RFC
//! 4861).

use std::net::{IpAddr, Ipv6Addr};

use crate::ip::{self, Header, IPV4_LEN, IPV6_LEN, Version, protocol};
use crate::{MacAddr, checksum};

/// Length of the header of every message here, in bytes.
pub(crate) const ICMP_LEN: usize = 8;
/// Maximum number of bytes of the packet that an IPv4 error quotes, so that the whole has at most
/// 576 bytes (RFC 1812, section 4.3.2.3).
const QUOTE_V4: usize = 576 - IPV4_LEN - ICMP_LEN;
/// Maximum number of bytes of the packet that an IPv6 error quotes: the minimum MTU is 1280 (RFC
/// 4443, section 3.1).
const QUOTE_V6: usize = 1280 - IPV6_LEN - ICMP_LEN;

/// Reason that a packet could not be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No host has its destination address, or the host does not answer.
    Unreachable,
    /// No route leads to its destination.
    NoRoute,
    /// No socket is open at its port.
    NoPort,
    /// The packet's time to live has run out.
    TimeExceeded,
    /// The packet is longer than this many bytes, and must not be fragmented.
    TooBig(u16),
}

/// Returns true if `packet`, whose bytes are `bytes`, is a message between the hosts and routers of
/// a link to a group there: of multicast listener discovery (RFC 3810), router discovery (RFC
/// 4861), or IGMP (RFC 3376). No router forwards it.
pub fn is_of_link(packet: &ip::Packet, bytes: &[u8]) -> bool {
    let kind = bytes.get(packet.header_len);
    ip::is_group(packet.destination())
        && packet.fragment == ip::Fragment::Whole
        && match packet.version {
            Version::V4 => packet.protocol == protocol::IGMP && packet.ttl == 1,
            // Queries, reports and ends of listeners; solicitations and advertisements of routers.
            Version::V6 => {
                packet.protocol == protocol::ICMPV6
                    && match kind {
                        Some(130..=132 | 143) => packet.ttl == 1,
                        Some(133 | 134) => packet.ttl == 255,
                        _ => false,
                    }
            }
        }
}

/// Returns the packet with which `from` reports a `problem` to the sender of `packet`; `None` if
/// the standards forbid it (RFC 1812, section 4.3.2.7; RFC 4443, section 2.4): no error is sent
/// about an error message, a redirect, a fragment other than the first, a packet to a group, or one
/// whose source is not a single host ([`ip::is_host`]) or is `from` itself. `bytes` are the
/// packet's bytes, or its first ones.
pub fn error(from: IpAddr, packet: &ip::Packet, bytes: &[u8], problem: Problem) -> Option<Vec<u8>> {
    let (src, dst) = (packet.source(), packet.destination());
    if !ip::is_host(src)
        || src == from
        || ip::is_group(dst)
        || packet.fragment == ip::Fragment::Later
        || is_error(packet, bytes)
    {
        return None;
    }
    let quoted = &bytes[..bytes.len().min(packet.len)];
    let message = match (from, src) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            let (kind, code, rest) = match problem {
                Problem::Unreachable => (3, 1, 0),
                Problem::NoRoute => (3, 0, 0),
                Problem::NoPort => (3, 3, 0),
                Problem::TimeExceeded => (11, 0, 0),
                Problem::TooBig(mtu) => (3, 4, u32::from(mtu)),
            };
            message(kind, code, rest, &quoted[..quoted.len().min(QUOTE_V4)])
        }
        (IpAddr::V6(_), IpAddr::V6(_)) => {
            let (kind, code, rest) = match problem {
                Problem::Unreachable => (1, 3, 0),
                Problem::NoRoute => (1, 0, 0),
                Problem::NoPort => (1, 4, 0),
                Problem::TimeExceeded => (3, 0, 0),
                Problem::TooBig(mtu) => (2, 0, u32::from(mtu)),
            };
            message(kind, code, rest, &quoted[..quoted.len().min(QUOTE_V6)])
        }
        _ => return None,
    };
    into_packet(from, src, 64, message)
}

/// Returns true if `packet` is an ICMP error or a redirect, or if its type is not in `bytes`.
fn is_error(packet: &ip::Packet, bytes: &[u8]) -> bool {
    let kind = bytes.get(packet.header_len);
    match packet.protocol {
        // All except the known queries (RFC 1812, section 4.3.2.7).
        protocol::ICMP => kind.is_none_or(|kind| ![0, 8, 13, 14].contains(kind)),
        protocol::ICMPV6 => kind.is_none_or(|kind| *kind < 128 || *kind == REDIRECT),
        _ => false,
    }
}

/// Returns the reply to `packet` if that is an echo request from one host to another; `bytes` are
/// all bytes of the packet.
pub fn echo_reply(packet: &ip::Packet, bytes: &[u8]) -> Option<Vec<u8>> {
    let (src, dst) = (packet.source(), packet.destination());
    if packet.fragment != ip::Fragment::Whole
        || !ip::is_host(src)
        || !ip::is_host(dst)
        || src == dst
    {
        return None;
    }
    let request = bytes.get(packet.header_len..packet.len)?;
    let kind = (packet.version, packet.protocol);
    let reply = match (kind, request.first_chunk::<ICMP_LEN>()?) {
        ((Version::V4, protocol::ICMP), [8, 0, ..]) if checksum::internet(request) == 0 => 0,
        ((Version::V6, protocol::ICMPV6), [128, 0, ..])
            if ip::upper_checksum(src, dst, protocol::ICMPV6, &[request]) == 0 =>
        {
            129
        }
        _ => return None,
    };
    let mut message = request.to_vec();
    message[0] = reply;
    into_packet(dst, src, 64, message)
}

pub(crate) fn message(kind: u8, code: u8, rest: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(body);
    message
}

/// Puts the message into a packet, with its checksum; `None` if the addresses differ in version, or
/// the message is too long for a packet.
fn into_packet(src: IpAddr, dst: IpAddr, ttl: u8, mut message: Vec<u8>) -> Option<Vec<u8>> {
    message[2..4].fill(0);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let len = u16::try_from(IPV4_LEN + message.len()).ok()?;
            let payload_len = len - IPV4_LEN as u16;
            let protocol = protocol::ICMP;
            let sum = checksum::internet(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut header = [0; IPV4_LEN];
            Header { src, dst, protocol, tos: 0, ttl, payload_len }.write(&mut header);
            Some([&header[..], &message].concat())
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => into_packet_v6(src, dst, ttl, message),
        _ => None,
    }
}

/// Like [`into_packet`], over IPv6.
pub(crate) fn into_packet_v6(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    ttl: u8,
    mut message: Vec<u8>,
) -> Option<Vec<u8>> {
    let payload_len = u16::try_from(message.len()).ok()?;
    let protocol = protocol::ICMPV6;
    message[2..4].fill(0);
    let sum = ip::upper_checksum(src.into(), dst.into(), protocol, &[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut header = [0; IPV6_LEN];
    Header { src, dst, protocol, tos: 0, ttl, payload_len }.write(&mut header);
    Some([&header[..], &message].concat())
}

/// A neighbour discovery message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Asks which station has `target`.
    Solicitation {
        /// The address that is looked for.
        target: Ipv6Addr,
        /// Link-layer address of the sender.
        source: Option<MacAddr>,
    },
    /// Neighbour advertisement: `target` is at `mac`.
    Advertisement {
        /// The address that is advertised.
        target: Ipv6Addr,
        /// Link-layer address of the target.
        mac: MacAddr,
    },
}

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
/// Flag of an advertisement: sent in reply to a solicitation.
const SOLICITED: u32 = 0x4000_0000;
/// The flag `SOLICITED` in the first byte of the flags.
const SOLICITED_BIT: u8 = (SOLICITED >> 24) as u8;
/// Flag of an advertisement: replaces what was known.
const OVERRIDE: u32 = 0x2000_0000;
/// The group of all nodes on a link, and its Ethernet address (RFC 4291, section 2.7.1; RFC 2464,
/// section 7).
pub const ALL_NODES: (Ipv6Addr, MacAddr) =
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), MacAddr([0x33, 0x33, 0, 0, 0, 1]));

impl Discovery {
    /// Returns true if the type of `packet` is a neighbour solicitation or advertisement, valid or
    /// not.
    pub fn is_in(packet: &ip::Packet, bytes: &[u8]) -> bool {
        let kind = bytes.get(packet.header_len);
        packet.version == Version::V6
            && packet.protocol == protocol::ICMPV6
            && kind.is_some_and(|kind| matches!(*kind, SOLICITATION | ADVERTISEMENT))
    }

    /// Parses the message in `packet`, whose bytes are `bytes`; `None` if it is not a valid
    /// discovery message (sections 7.1.1 and 7.1.2).
    pub fn parse(packet: &ip::Packet, bytes: &[u8]) -> Option<Self> {
        let body = bytes.get(packet.header_len..packet.len)?;
        let (src, dst) = (packet.source(), packet.destination());
        // A hop limit of 255 shows that no router forwarded it.
        if packet.version != Version::V6
            || packet.protocol != protocol::ICMPV6
            || packet.ttl != 255
            || packet.fragment != ip::Fragment::Whole
            || ip::upper_checksum(src, dst, protocol::ICMPV6, &[body]) != 0
        {
            return None;
        }
        let (head, mut options) = body.split_at_checked(ICMP_LEN + 16)?;
        let target = Ipv6Addr::from(<[u8; 16]>::try_from(&head[ICMP_LEN..]).ok()?);
        let (mut source_mac, mut target_mac) = (None, None);
        while let [kind, units, ..] = *options {
            let (option, rest) = options.split_at_checked(8 * usize::from(units))?;
            let mac = option.get(2..8).and_then(|mac| mac.try_into().ok()).map(MacAddr);
            match kind {
                // An option of length zero would never end.
                _ if units == 0 => return None,
                OPTION_SOURCE => source_mac = mac,
                OPTION_TARGET => target_mac = mac,
                _ => {}
            }
            options = rest;
        }
        match (head[0], head[1]) {
            _ if target.is_multicast() => None,
            // A sender that checks whether an address is free has none yet: it asks a group,
            // without option.
            (SOLICITATION, 0)
                if src.is_unspecified() && !(dst.is_multicast() && source_mac.is_none()) =>
            {
                None
            }
            (SOLICITATION, 0) => Some(Self::Solicitation { target, source: source_mac }),
            (ADVERTISEMENT, 0) if dst.is_multicast() && head[4] & SOLICITED_BIT != 0 => None,
            (ADVERTISEMENT, 0) => Some(Self::Advertisement { target, mac: target_mac? }),
            _ => None,
        }
    }

    /// Returns the message in a packet from `src` to `dst`.
    pub fn to_packet(self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let (kind, flags, target, option, mac) = match self {
            Self::Solicitation { target, source } => {
                (SOLICITATION, 0, target, OPTION_SOURCE, source)
            }
            Self::Advertisement { target, mac } => {
                // An advertisement to all nodes is not solicited (RFC 4861, section 7.2.6).
                let solicited = if dst.is_multicast() { 0 } else { SOLICITED };
                (ADVERTISEMENT, solicited | OVERRIDE, target, OPTION_TARGET, Some(mac))
            }
        };
        let mut bytes = message(kind, 0, flags, &target.octets());
        if let Some(mac) = mac {
            bytes.extend([option, 1]);
            bytes.extend(mac.0);
        }
        into_packet_v6(src, dst, 255, bytes).expect("a message of 32 bytes")
    }
}

/// Returns the group on which `address` receives solicitations, and the group's Ethernet address
/// (RFC 4291, section 2.7.1; RFC 2464, section 7).
pub fn solicited_node(address: Ipv6Addr) -> (Ipv6Addr, MacAddr) {
    let [.., b, c, d] = address.octets();
    let group =
        Ipv6Addr::from(u128::from_be_bytes([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, b, c, d]));
    (group, MacAddr([0x33, 0x33, 0xff, b, c, d]))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::ip::Packet;
    use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Packet {
        Packet::parse(bytes, bytes.len()).unwrap()
    }

    fn udp(v6: bool, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = match v6 {
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
            false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        };
        builder.udp(1, 2).write(&mut bytes, payload).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn etherparse_parses_icmp_errors(
            v6: bool, len in 0usize..2000, problem in 0usize..5,
        ) {
            let all = [
                Problem::Unreachable, Problem::NoRoute, Problem::NoPort, Problem::TimeExceeded, Problem::TooBig(1400),
            ];
            let problem = all[problem];
            let bytes = udp(v6, &vec![7; len]);
            let from: IpAddr = if v6 { [9; 16].into() } else { [10, 9, 9, 9].into() };
            let message = error(from, &parse(&bytes), &bytes, problem).unwrap();
            prop_assert_eq!(message.len(), (bytes.len() + if v6 { 48 } else { 28 }).min(if v6 { 1280 } else { 576 }));
            let packet = parse(&message);
            prop_assert_eq!((ip::address(packet.src), packet.dst), (from, parse(&bytes).src));
            let sliced = SlicedPacket::from_ip(&message).unwrap();
            match sliced.transport.unwrap() {
                TransportSlice::Icmpv4(icmp) => {
                    prop_assert!(bytes.starts_with(icmp.payload()));
                    prop_assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));
                    let right = match icmp.icmp_type() {
                        Icmpv4Type::TimeExceeded(_) => problem == Problem::TimeExceeded,
                        Icmpv4Type::DestinationUnreachable(kind) => match kind {
                            etherparse::icmpv4::DestUnreachableHeader::Host => problem == Problem::Unreachable,
                            etherparse::icmpv4::DestUnreachableHeader::Network => problem == Problem::NoRoute,
                            etherparse::icmpv4::DestUnreachableHeader::Port => problem == Problem::NoPort,
                            etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu } =>
                                problem == Problem::TooBig(next_hop_mtu),
                            _ => false,
                        },
                        _ => false,
                    };
                    prop_assert!(right, "{:?}", icmp.icmp_type());
                }
                TransportSlice::Icmpv6(icmp) => {
                    prop_assert!(bytes.starts_with(icmp.payload()));
                    let right = match icmp.icmp_type() {
                        Icmpv6Type::TimeExceeded(_) => problem == Problem::TimeExceeded,
                        Icmpv6Type::PacketTooBig { mtu } => problem == Problem::TooBig(mtu as u16),
                        Icmpv6Type::DestinationUnreachable(code) => match code {
                            etherparse::icmpv6::DestUnreachableCode::Address => problem == Problem::Unreachable,
                            etherparse::icmpv6::DestUnreachableCode::NoRoute => problem == Problem::NoRoute,
                            etherparse::icmpv6::DestUnreachableCode::Port => problem == Problem::NoPort,
                            _ => false,
                        },
                        _ => false,
                    };
                    prop_assert!(right, "{:?}", icmp.icmp_type());
                    let body = &message[IPV6_LEN..];
                    prop_assert_eq!(ip::upper_checksum(from, [1; 16].into(), protocol::ICMPV6, &[body]), 0);
                }
                other => prop_assert!(false, "{other:?}"),
            }
            prop_assert_eq!(error(from, &packet, &message, problem), None, "no error about an error");
        }

        #[test]
        fn neighbour_discovery_round_trips(
            src: [u8; 16], dst: [u8; 16], target: [u8; 16], mac: Option<[u8; 6]>, change in any::<(usize, u8)>(),
        ) {
            let (src, dst, target) = (Ipv6Addr::from(src), Ipv6Addr::from(dst), Ipv6Addr::from(target));
            prop_assume!(!target.is_multicast() && !src.is_unspecified());
            prop_assume!(src.to_ipv4_mapped().is_none() && dst.to_ipv4_mapped().is_none());
            let mac = mac.map(MacAddr);
            let messages = [
                Discovery::Solicitation { target, source: mac },
                Discovery::Advertisement { target, mac: mac.unwrap_or(MacAddr::local(1)) },
            ];
            for message in messages {
                let mut bytes = message.to_packet(src, dst);
                prop_assert_eq!(Discovery::parse(&parse(&bytes), &bytes), Some(message));
                let packet = parse(&bytes);
                let routed = Packet { ttl: 254, ..packet };
                prop_assert_eq!(Discovery::parse(&routed, &bytes), None, "from beyond a router");
                let at = change.0 % bytes.len();
                bytes[at] ^= change.1;
                if let Ok(packet) = Packet::parse(&bytes, bytes.len()) {
                    let _ = Discovery::parse(&packet, &bytes);
                }
            }
        }

        #[test]
        fn echo_requests_get_replies(v6: bool, payload in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = Vec::new();
            match v6 {
                true => PacketBuilder::ipv6([1; 16], [2; 16], 64)
                    .icmpv6_echo_request(5, 6).write(&mut bytes, &payload).unwrap(),
                false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                    .icmpv4_echo_request(5, 6).write(&mut bytes, &payload).unwrap(),
            }
            let reply = echo_reply(&parse(&bytes), &bytes).unwrap();
            let mut expected = Vec::new();
            match v6 {
                true => PacketBuilder::ipv6([2; 16], [1; 16], 64)
                    .icmpv6_echo_reply(5, 6).write(&mut expected, &payload).unwrap(),
                false => PacketBuilder::ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
                    .icmpv4_echo_reply(5, 6).write(&mut expected, &payload).unwrap(),
            }
            prop_assert_eq!(&reply, &expected);
            prop_assert_eq!(echo_reply(&parse(&reply), &reply), None);
        }
    }

    /// Returns a message in a packet of the wrong IP version for its protocol, with valid
    /// checksums.
    fn of_other_version(v6: bool, mut message: Vec<u8>) -> Vec<u8> {
        let payload_len = message.len() as u16;
        let (tos, ttl) = (0, 255);
        if v6 {
            let (src, dst) = (Ipv6Addr::from([1; 16]), Ipv6Addr::from([2; 16]));
            let protocol = protocol::ICMP;
            let sum = checksum::internet(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut header = [0; IPV6_LEN];
            Header { src, dst, protocol, tos, ttl, payload_len }.write(&mut header);
            return [&header[..], &message].concat();
        }
        let (src, dst) = (Ipv4Addr::from([10, 0, 0, 1]), Ipv4Addr::from([10, 0, 0, 2]));
        let protocol = protocol::ICMPV6;
        let ends = (IpAddr::V4(src), IpAddr::V4(dst));
        let sum = ip::upper_checksum(ends.0, ends.1, protocol, &[&message]);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut header = [0; IPV4_LEN];
        Header { src, dst, protocol, tos, ttl, payload_len }.write(&mut header);
        [&header[..], &message].concat()
    }

    #[test]
    fn messages_in_other_ip_version_are_ignored() {
        for kind in [SOLICITATION, ADVERTISEMENT] {
            let option = [OPTION_TARGET, 1, 2, 0, 0, 0, 0, 1];
            let bytes =
                of_other_version(false, message(kind, 0, 0, &[&[9; 16][..], &option].concat()));
            assert!(!Discovery::is_in(&parse(&bytes), &bytes));
            assert_eq!(Discovery::parse(&parse(&bytes), &bytes), None);
        }
        for (v6, kind) in [(false, 128), (true, 8)] {
            let bytes = of_other_version(v6, message(kind, 0, 0x10002, b"ping"));
            assert_eq!(echo_reply(&parse(&bytes), &bytes), None);
        }
    }

    #[test]
    fn no_icmp_error_for_groups_or_later_fragments() {
        let bytes = udp(false, &[]);
        let packet = parse(&bytes);
        let from = IpAddr::from([10, 9, 9, 9]);
        let group = ip::number([224, 0, 0, 1].into());
        let later = ip::Fragment::Later;
        for silent in [
            Packet { src: group, ..packet },
            Packet { dst: group, ..packet },
            Packet { src: ip::number([0, 0, 0, 0].into()), ..packet },
            Packet { src: ip::number([0, 0, 0, 9].into()), ..packet },
            Packet { src: ip::number([127, 0, 0, 1].into()), ..packet },
            Packet { src: ip::number([240, 0, 0, 1].into()), ..packet },
            Packet { fragment: later, ..packet },
        ] {
            assert_eq!(error(from, &silent, &bytes, Problem::Unreachable), None, "{silent:?}");
        }
        let about = |kind: u8| {
            let (mut bytes, from) = (udp(true, &[]), IpAddr::from([9; 16]));
            bytes[IPV6_LEN] = kind;
            let packet = Packet { protocol: protocol::ICMPV6, ..parse(&bytes) };
            error(from, &packet, &bytes, Problem::Unreachable)
        };
        assert_eq!([about(1), about(REDIRECT)], [None, None]);
        assert!(about(128).is_some(), "an echo request");
    }

    proptest! {
        /// Any values of a packet's fields, including those that no parser produces.
        #[test]
        fn icmp_errors_about_any_packet_never_panic(
            v6: bool, addresses in any::<(u128, u128)>(), mapped: (bool, bool), protocol: u8, fragment in 0usize..3,
            header_len in 0usize..100, len in 0usize..70_000, kind: u8, from: bool,
        ) {
            let number = |number: u128, mapped: bool| if mapped { 0xffff << 32 | number >> 96 } else { number };
            let packet = Packet {
                version: if v6 { ip::Version::V6 } else { ip::Version::V4 },
                src: number(addresses.0, mapped.0),
                dst: number(addresses.1, mapped.1),
                protocol: [protocol, protocol::ICMP, protocol::ICMPV6][usize::from(protocol) % 3],
                fragment: [ip::Fragment::Whole, ip::Fragment::First, ip::Fragment::Later][fragment],
                header_len,
                len,
                ..parse(&udp(false, &[]))
            };
            let (src, dst) = (packet.source(), packet.destination());
            let mut bytes = vec![0; 70_000];
            if let Some(message) = bytes.get_mut(header_len..len).filter(|message| message.len() >= 8) {
                message[0] = [kind, 8, 128, 135, 136][usize::from(kind) % 5];
                let sum = match packet.protocol {
                    protocol::ICMP => checksum::internet(message),
                    other => ip::upper_checksum(src, dst, other, &[message]),
                };
                message[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            let from: IpAddr = if from { [9; 16].into() } else { [10, 9, 9, 9].into() };
            let _ = error(from, &packet, &bytes, Problem::NoPort);
            let _ = Discovery::parse(&packet, &bytes);
            if let Some(reply) = echo_reply(&packet, &bytes) {
                prop_assert!(ip::is_host(src) && ip::is_host(dst) && src != dst);
                prop_assert_eq!(parse(&reply).destination(), src);
            }
        }
    }

    /// RFC 4861, sections 7.1.1 and 7.1.2.
    #[test]
    fn invalid_neighbour_discovery_is_refused() {
        let host: Ipv6Addr = "fe80::1".parse().unwrap();
        let (group, _) = ALL_NODES;
        let mac = MacAddr::local(1);
        let asks = |source| Discovery::Solicitation { target: host, source };
        let says = Discovery::Advertisement { target: host, mac };
        let read = |bytes: &[u8]| Discovery::parse(&parse(bytes), bytes);
        let free = asks(None).to_packet(Ipv6Addr::UNSPECIFIED, group);
        assert_eq!(read(&free), Some(asks(None)));
        let with_option = asks(Some(mac)).to_packet(Ipv6Addr::UNSPECIFIED, group);
        assert_eq!(read(&with_option), None, "unspecified source with a source option");
        let to_host = asks(None).to_packet(Ipv6Addr::UNSPECIFIED, host);
        assert_eq!(read(&to_host), None, "unspecified source to a unicast address");
        let about = Discovery::Advertisement { target: group, mac }.to_packet(host, host);
        assert_eq!(read(&about), None, "about a group");
        let mut solicited = says.to_packet(host, group);
        assert_eq!(read(&solicited), Some(says));
        solicited[IPV6_LEN + 4] |= 0x40;
        solicited[IPV6_LEN + 2..IPV6_LEN + 4].fill(0);
        let sum = ip::upper_checksum(host.into(), group.into(), 58, &[&solicited[IPV6_LEN..]]);
        solicited[IPV6_LEN + 2..IPV6_LEN + 4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&solicited), None, "solicited, to a group");
    }

    #[test]
    fn solicited_node_group_follows_address() {
        let (group, mac) = solicited_node("fe80::2aa:ff:fe28:9c5a".parse().unwrap());
        assert_eq!(group, "ff02::1:ff28:9c5a".parse::<Ipv6Addr>().unwrap());
        assert_eq!(mac.to_string(), "33:33:ff:28:9c:5a");
    }
}

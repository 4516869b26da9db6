//! Router discovery (RFC 4861), as far as the first router on a user's own link takes part in it.
//! The link of a user is a tunnel, with two ends and no link-layer addresses.

use std::net::Ipv6Addr;

use crate::MacAddr;
use crate::icmp::{ICMP_LEN, into_packet_v6, message};
use crate::ip::{self, Fragment, Packet, Version, protocol};

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
const OPTION_SOURCE: u8 = 1;
const OPTION_PREFIX: u8 = 3;
const OPTION_MTU: u8 = 5;

/// Minimum MTU of an IPv6 link (RFC 8200, section 5).
const MTU_MIN: u32 = 1280;

/// Returns true if an address ([`ip::number`]) is link-local: `fe80::/10`.
#[inline]
pub fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

/// Returns the link-local address derived from an Ethernet address (RFC 4291, appendix A).
pub fn link_local(MacAddr([a, b, c, d, e, f]): MacAddr) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns true if the type of `packet` is router solicitation, valid or not; `bytes` are its
/// first.
pub fn is_solicitation(packet: &Packet, bytes: &[u8]) -> bool {
    packet.version == Version::V6
        && packet.protocol == protocol::ICMPV6
        && bytes.get(packet.header_len) == Some(&SOLICITATION)
}

/// Returns true if the router solicitation in `packet` is valid (section 6.1.1); `bytes` are all of
/// its bytes.
pub fn is_valid_solicitation(packet: &Packet, bytes: &[u8]) -> bool {
    let Some(body) = bytes.get(packet.header_len..packet.len) else { return false };
    let Some((&[kind, code, ..], mut options)) = body.split_first_chunk::<ICMP_LEN>() else {
        return false;
    };
    let (src, dst) = (packet.source(), packet.destination());
    let mut is_valid = packet.version == Version::V6
        && packet.protocol == protocol::ICMPV6
        // No router forwarded it.
        && packet.ttl == 255
        && packet.fragment == Fragment::Whole
        && (kind, code) == (SOLICITATION, 0)
        && ip::upper_checksum(src, dst, protocol::ICMPV6, &[body]) == 0;
    while is_valid && !options.is_empty() {
        let len = options.get(1).map_or(0, |units| 8 * usize::from(*units));
        let has_source = options[0] == OPTION_SOURCE && src.is_unspecified();
        match options.get(len..) {
            Some(rest) if len > 0 && !has_source => options = rest,
            _ => is_valid = false,
        }
    }
    is_valid
}

/// Returns a router advertisement from `src` to `dst`: `src` is the default router, and the
/// receiver may choose addresses with the first 64 bits of `prefix`, though not as on-link. `mtu`
/// is the link's, and is left out if it is below the minimum of IPv6.
pub fn advertisement(src: Ipv6Addr, dst: Ipv6Addr, prefix: Ipv6Addr, mtu: u32) -> Option<Vec<u8>> {
    const HOP_LIMIT: u32 = 64;
    // The maximum (RFC 8319): about 18 hours.
    const ROUTER_LIFETIME: u32 = 0xffff;
    const AUTONOMOUS: u8 = 0x40;
    const FOR_EVER: [u8; 4] = [0xff; 4];
    // Reachable time and retransmission timer: unspecified, left to the receiver.
    let mut body = vec![0; 8];
    body.extend([OPTION_PREFIX, 4, 64, AUTONOMOUS]);
    body.extend([FOR_EVER, FOR_EVER, [0; 4]].concat());
    body.extend((u128::from(prefix) >> 64 << 64).to_be_bytes());
    if mtu >= MTU_MIN {
        body.extend([OPTION_MTU, 1, 0, 0]);
        body.extend(mtu.to_be_bytes());
    }
    let message = message(ADVERTISEMENT, 0, HOP_LIMIT << 24 | ROUTER_LIFETIME, &body);
    into_packet_v6(src, dst, 255, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn solicitation(src: Ipv6Addr, code: u8, ttl: u8, options: &[u8]) -> Vec<u8> {
        let dst = "ff02::2".parse().unwrap();
        into_packet_v6(src, dst, ttl, message(SOLICITATION, code, 0, options)).unwrap()
    }

    fn is_valid(bytes: &[u8]) -> bool {
        let packet = Packet::parse(bytes, bytes.len()).unwrap();
        assert!(is_solicitation(&packet, bytes));
        is_valid_solicitation(&packet, bytes)
    }

    #[test]
    fn invalid_router_solicitations_are_refused() {
        let (host, none) = ("fe80::1".parse().unwrap(), Ipv6Addr::UNSPECIFIED);
        let source = [OPTION_SOURCE, 1, 2, 0, 0, 0, 0, 1];
        assert!(is_valid(&solicitation(host, 0, 255, &[])));
        assert!(is_valid(&solicitation(none, 0, 255, &[])));
        assert!(is_valid(&solicitation(host, 0, 255, &source)));
        assert!(!is_valid(&solicitation(none, 0, 255, &source)), "it has no address");
        assert!(!is_valid(&solicitation(host, 0, 254, &[])));
        assert!(!is_valid(&solicitation(host, 1, 255, &[])));
        assert!(!is_valid(&solicitation(host, 0, 255, &[7, 0, 0, 0, 0, 0, 0, 0])), "no length");
        assert!(!is_valid(&solicitation(host, 0, 255, &source[..7])));
        assert!(!is_valid(&solicitation(host, 0, 255, &[9])));
        let mut wrong = solicitation(host, 0, 255, &[]);
        wrong[43] ^= 1;
        assert!(!is_valid(&wrong), "checksum");
    }

    #[test]
    fn link_local_address_follows_mac() {
        let mac = "00:aa:00:3f:2a:1c".parse().unwrap();
        assert_eq!(link_local(mac).to_string(), "fe80::2aa:ff:fe3f:2a1c");
        for (address, expected) in
            [("fe80::1", true), ("febf::1", true), ("fec0::1", false), ("2001:db8::", false)]
        {
            assert_eq!(is_link_local(address.parse::<Ipv6Addr>().unwrap().into()), expected);
        }
    }

    proptest! {
        #[test]
        fn parsing_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 48..100)) {
            bytes[0] = 0x60;
            bytes[6] = 58;
            let len = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
            if let Ok(packet) = Packet::parse(&bytes, bytes.len()) {
                is_valid_solicitation(&packet, &bytes);
            }
        }
    }
}

//! Addresses of both versions as numbers, and what they stand for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The high 96 bits of an IPv4 address as a number.
pub(super) const MAPPED: u128 = 0xffff << 32;

/// Returns an address as a number.
#[inline]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => MAPPED | u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    }
}

/// Returns the address for a number made by [`number`].
#[inline]
pub fn address(number: u128) -> IpAddr {
    match as_ipv4(number) {
        Some(address) => address.into(),
        None => Ipv6Addr::from(number).into(),
    }
}

/// Returns the IPv4 address that a number represents, if it does.
#[inline]
pub fn as_ipv4(number: u128) -> Option<Ipv4Addr> {
    (number >> 32 == MAPPED >> 32).then(|| (number as u32).into())
}

/// Returns true if `address` can be the address of a single host on a network: the only kind that
/// may be the source of a packet, and the destination of a reply or an error (RFC 1122, section
/// 3.2.1.3; RFC 4443, section 2.4; RFC 6890). This excludes "this network", loopback, groups, class
/// E and the limited broadcast, and `::/64` (unspecified, loopback, IPv4-mapped).
#[inline]
pub fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(address) => u128::from(address) >> 64 != 0 && !address.is_multicast(),
    }
}

/// Returns true if `address` is a group address: multicast, or the limited broadcast.
#[inline]
pub fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}

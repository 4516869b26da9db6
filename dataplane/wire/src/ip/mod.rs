//! IPv4 and IPv6 (RFC 791, RFC 8200), as far as a router and a packet filter need to read them.
//!
//! An address of either version is a number of 128 bits, an IPv4 address as `::ffff:a.b.c.d` (RFC
//! 4291, section 2.5.5.2), so that rules compare both in one way.

mod address;
mod build;
mod change;
mod packet;
#[cfg(test)]
mod tests;

pub use address::{address, as_ipv4, is_group, is_host, number};
pub use build::{Header, upper_checksum};
pub use change::{decrement_ttl, ecn, set_ecn};
pub use packet::{Fragment, IpError, PORTS_LEN, Packet, Version};

/// Length of an IPv4 header without options, in bytes.
pub const IPV4_LEN: usize = 20;
/// Length of the fixed IPv6 header, in bytes.
pub const IPV6_LEN: usize = 40;

/// Numbers of upper-layer protocols (IANA).
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IGMP for IPv4.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// IPv6: no next header.
    pub const NONE: u8 = 59;
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(crate) const DESTINATION: u8 = 60;
}

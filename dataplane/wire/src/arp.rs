//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::MacAddr;

/// Length of a message, in bytes.
pub const ARP_LEN: usize = 28;

/// Ethernet, IPv4, and the lengths of their addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// An ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// True for a request, false for a reply.
    pub is_request: bool,
    /// Addresses of the sender.
    pub sender: (MacAddr, Ipv4Addr),
    /// Addresses of the target: the station asked for, or the receiver of the reply.
    pub target: (MacAddr, Ipv4Addr),
}

impl Arp {
    /// Parses the message at the start of `bytes`; `None` if it is not ARP for IPv4 over Ethernet.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let message: &[u8; ARP_LEN] = bytes.first_chunk()?;
        let is_request = match u16::from_be_bytes([message[6], message[7]]) {
            REQUEST => true,
            REPLY => false,
            _ => return None,
        };
        let side = |at: usize| -> Option<(MacAddr, Ipv4Addr)> {
            let mac = message.get(at..at + 6)?.try_into().ok()?;
            let ip: [u8; 4] = message.get(at + 6..at + 10)?.try_into().ok()?;
            Some((MacAddr(mac), ip.into()))
        };
        (message[..6] == KIND).then_some(())?;
        Some(Self { is_request, sender: side(8)?, target: side(18)? })
    }

    /// Returns the message as bytes.
    pub fn to_bytes(&self) -> [u8; ARP_LEN] {
        let mut bytes = [0; ARP_LEN];
        bytes[..6].copy_from_slice(&KIND);
        bytes[6..8].copy_from_slice(&(if self.is_request { REQUEST } else { REPLY }).to_be_bytes());
        for (at, (mac, ip)) in [(8, self.sender), (18, self.target)] {
            bytes[at..at + 6].copy_from_slice(&mac.0);
            bytes[at + 6..at + 10].copy_from_slice(&ip.octets());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{ArpOperation, ArpPacketSlice};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn etherparse_parses_written_arp(is_request: bool, macs: [[u8; 6]; 2], ips: [[u8; 4]; 2]) {
            let side = |i: usize| (MacAddr(macs[i]), Ipv4Addr::from(ips[i]));
            let arp = Arp { is_request, sender: side(0), target: side(1) };
            let bytes = arp.to_bytes();
            let theirs = ArpPacketSlice::from_slice(&bytes).unwrap();
            let operation = if is_request { ArpOperation::REQUEST } else { ArpOperation::REPLY };
            prop_assert_eq!(theirs.operation(), operation);
            prop_assert_eq!((theirs.sender_hw_addr(), theirs.sender_protocol_addr()), (&macs[0][..], &ips[0][..]));
            prop_assert_eq!((theirs.target_hw_addr(), theirs.target_protocol_addr()), (&macs[1][..], &ips[1][..]));
            prop_assert_eq!(Arp::parse(&bytes), Some(arp));
            prop_assert_eq!(Arp::parse(&bytes[1..]), None);
        }

        #[test]
        fn parsed_arp_round_trips(bytes: [u8; ARP_LEN]) {
            let mut bytes = bytes;
            bytes[..7].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0]);
            match Arp::parse(&bytes) {
                Some(arp) => prop_assert_eq!(arp.to_bytes(), bytes),
                None => prop_assert!(![1, 2].contains(&bytes[7])),
            }
        }
    }
}

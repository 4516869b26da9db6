//! Ethernet II headers.

use crate::MacAddr;

/// Length of the header, in bytes.
pub const ETHERNET_LEN: usize = 14;

/// The largest frame without a VLAN tag, in bytes: 9000 bytes of IP packet after the header.
pub const FRAME_MAX: usize = ETHERNET_LEN + 9000;
/// Length of a VLAN tag (IEEE 802.1Q), in bytes.
pub const TAG_LEN: usize = 4;
/// EtherType of a VLAN tag, as a frame has it.
pub const TAG_TYPE: [u8; 2] = [0x81, 0x00];
/// EtherType of a provider's VLAN tag (IEEE 802.1ad), as a frame has it.
pub const SERVICE_TAG_TYPE: [u8; 2] = [0x88, 0xa8];

/// Returns true for the EtherType of a VLAN tag: of IEEE 802.1Q and 802.1ad, and those that bridges
/// had for nested tags before (0x9100, 0x9200, 0x9300).
#[inline]
pub fn is_tag_type(kind: [u8; 2]) -> bool {
    matches!(kind, TAG_TYPE | SERVICE_TAG_TYPE | [0x91..=0x93, 0])
}

/// EtherTypes (IANA).
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
}

/// Contents of an Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl Ethernet {
    /// Parses the header at the start of `frame`; `None` if `frame` is too short.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        frame.first_chunk().map(Self::read)
    }

    /// Reads a header.
    #[inline]
    pub fn read(header: &[u8; ETHERNET_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *header;
        Self {
            dst: MacAddr([a, b, c, d, e, f]),
            src: MacAddr([g, h, i, j, k, l]),
            ethertype: u16::from_be_bytes([m, n]),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, out: &mut [u8; ETHERNET_LEN]) {
        out[0..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        out[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsing_agrees_with_etherparse(bytes: [u8; ETHERNET_LEN]) {
            let ours = Ethernet::parse(&bytes).unwrap();
            let (theirs, _) = etherparse::Ethernet2Header::from_slice(&bytes).unwrap();
            prop_assert_eq!((ours.dst.0, ours.src.0), (theirs.destination, theirs.source));
            prop_assert_eq!(ours.ethertype, theirs.ether_type.0);
            let mut again = [0; ETHERNET_LEN];
            ours.write(&mut again);
            prop_assert_eq!(again, bytes);
            prop_assert_eq!(Ethernet::parse(&bytes[1..]), None);
        }
    }
}

//! Addresses: every end of every link of a lab has its own, so that links do not disturb each
//! other, wherever their frames meet.

use std::fmt;
use std::net::Ipv4Addr;

use dray_wire::MacAddr;

/// Identifies one end of one link of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndId {
    /// Number of the link, from 1.
    link: u32,
    /// Number of the end: 1 or 2.
    side: u32,
}

/// Prefix length of the network of a link: each link is a network of two hosts in 198.18.0.0/15,
/// which is reserved for benchmarks (RFC 2544).
pub(crate) const PREFIX_LEN: u8 = 30;
const FIRST_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// Between hosts, networks are as large, in the upper half of 100.64.0.0/10, which is for networks
/// between those of others (RFC 6598); the lower half is for [networks of engines].
///
/// [networks of engines]: crate::runtime::network
const FIRST_CARD_NETWORK: Ipv4Addr = Ipv4Addr::new(100, 96, 0, 0);
/// Number of such networks; the first one is unused.
const LINKS_MAX: u32 = 1 << (PREFIX_LEN - 15);

impl EndId {
    /// Returns both ends of link number `link`, which is 1 or more.
    ///
    /// # Panics
    /// If there are more links than addresses.
    pub(crate) fn both(link: u32) -> [Self; 2] {
        assert!(link < LINKS_MAX, "more links than addresses");
        [1, 2].map(|side| Self { link, side })
    }

    pub(super) fn link(self) -> u32 {
        self.link
    }

    pub(super) fn ip(self) -> Ipv4Addr {
        self.ip_from(FIRST_NETWORK)
    }

    /// Network of the link: its first address and prefix length.
    pub(super) fn network(self) -> String {
        let first = FIRST_NETWORK.to_bits() + self.link * 4;
        format!("{}/{PREFIX_LEN}", Ipv4Addr::from_bits(first))
    }

    /// Address of the network card of a host, of which each link has one at each side.
    pub(super) fn card_ip(self) -> Ipv4Addr {
        self.ip_from(FIRST_CARD_NETWORK)
    }

    fn ip_from(self, first: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from_bits(first.to_bits() + self.link * 4 + self.side)
    }

    /// Address of the interface in the container.
    pub(super) fn mac(self) -> MacAddr {
        self.address(0)
    }

    /// Address of the station behind the container's interface.
    pub(super) fn station(self) -> MacAddr {
        self.address(0x40)
    }

    /// Address of the "host" interface that leads to the container's interface.
    pub(super) fn port_mac(self) -> MacAddr {
        self.address(0x80)
    }

    /// Address of an interface that stands for a network card, on the "host" or on a host beside
    /// it.
    pub(super) fn card_mac(self) -> MacAddr {
        self.address(0xc0)
    }

    /// Builds an address. The two bytes between the link and the side are free for [other machines]
    /// of the same link.
    ///
    /// [other machines]: dray_wire::Flow::between_others
    fn address(self, kind: u32) -> MacAddr {
        MacAddr::local(u64::from(self.link) << 24 | u64::from(kind | self.side))
    }
}

impl fmt::Display for EndId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.link, self.side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_wire::Flow;
    use std::collections::BTreeSet;

    #[test]
    fn ends_have_distinct_addresses() {
        let links = [1, 2, 255, 256, 257, LINKS_MAX - 1];
        let ids: Vec<_> = links.into_iter().flat_map(EndId::both).collect();
        let macs = |id: &EndId| {
            let flow = Flow { src_mac: id.station(), ..Flow::default() };
            let others = [0, 1, 255, 256, 16383].map(|index| flow.between_others(index).src_mac);
            [&[id.mac(), id.port_mac(), id.card_mac()][..], &others].concat()
        };
        let all: Vec<_> = ids.iter().flat_map(macs).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let ips: BTreeSet<_> = ids.iter().map(|id| id.ip()).collect();
        assert_eq!(ips.len(), ids.len());
        assert_eq!(ips.first(), Some(&Ipv4Addr::new(198, 18, 0, 5)));
        assert_eq!(ips.last(), Some(&Ipv4Addr::new(198, 19, 255, 254)));
    }
}

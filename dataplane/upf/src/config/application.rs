//! Applications, identified by the addresses of their servers.

use serde::{Deserialize, Serialize};

use super::filter::{Ends, Prefix};

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Name by which rules refer to it.
    pub name: String,
    /// Addresses of its servers.
    pub servers: Vec<Prefix>,
    /// Ports of its servers; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Upper-layer protocol; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
}

/// An application in the form that packets are matched against: a set of any size costs one binary
/// search.
#[derive(Debug)]
pub(crate) struct Detector {
    /// First and last address of each range, ascending; ranges do not overlap.
    servers: Box<[(u128, u128)]>,
    /// Ascending.
    ports: Box<[u16]>,
    protocol: Option<u8>,
}

impl From<&Application> for Detector {
    fn from(application: &Application) -> Self {
        let mut ranges: Vec<_> = application.servers.iter().flat_map(Prefix::ranges).collect();
        ranges.sort_unstable();
        // Two prefix ranges are either nested or disjoint.
        ranges.dedup_by(|later, kept| later.1 <= kept.1);
        let mut ports = application.ports.clone();
        ports.sort_unstable();
        Self { servers: ranges.into(), ports: ports.into(), protocol: application.protocol }
    }
}

impl Detector {
    pub(crate) fn matches(&self, ends: &Ends) -> bool {
        let (address, port) = ends.remote;
        let behind = self.servers.partition_point(|(first, _)| *first <= address);
        let server = behind.checked_sub(1).is_some_and(|at| address <= self.servers[at].1);
        server
            && self.protocol.is_none_or(|protocol| protocol == ends.protocol)
            && (self.ports.is_empty()
                || port.is_some_and(|port| self.ports.binary_search(&port).is_ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_wire::ip;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn detector_agrees_with_server_prefixes(
            servers in prop::collection::vec(("[0-9a-f]", 1u32..=6), 0..9),
            ports in prop::collection::vec(0u16..4, 0..3), address in 0u128..16, port in 0u16..4,
        ) {
            let servers: Vec<Prefix> = servers
                .iter()
                .map(|(digit, length)| format!("{digit}000::/{length}").parse().unwrap())
                .collect();
            let ends = |address| Ends { protocol: 6, remote: (address, Some(port)), local: (0, None) };
            let address = address << 124;
            let expected = servers.iter().any(|prefix| prefix.contains(address))
                && (ports.is_empty() || ports.contains(&port));
            let application = Application { name: "a".to_owned(), servers, ports, protocol: None };
            let detector = Detector::from(&application);
            prop_assert_eq!(detector.matches(&ends(address)), expected);
            let other = Detector::from(&Application { protocol: Some(17), ..application });
            prop_assert!(!other.matches(&ends(address)));
            prop_assert!(!detector.matches(&ends(ip::number([10, 0, 0, 1].into()))));
        }
    }
}

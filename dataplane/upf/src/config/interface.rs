//! Configuration of an interface: its own addresses, routes and neighbours.

use std::net::IpAddr;

use dray_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::filter::Prefix;

/// Configuration of N3 or N6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Ethernet address.
    pub mac: MacAddr,
    /// IP addresses: at most one of each version.
    pub addresses: Vec<IpAddr>,
    /// Maximum length of transmitted IP packets (MTU), in bytes.
    #[serde(default = "InterfaceConfig::default_mtu")]
    pub mtu: u16,
    /// Routes; a destination without a route is on the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// N3: networks of gNBs that may send into the tunnels of any session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gnbs: Vec<Prefix>,
    /// Neighbours with a configured Ethernet address, which is not resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
}

impl InterfaceConfig {
    fn default_mtu() -> u16 {
        1500
    }
}

/// Next hop of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Destination network.
    pub to: Prefix,
    /// Address of a neighbour; a host on the link itself is its own next hop.
    pub via: IpAddr,
}

/// A neighbour with a configured Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address.
    pub mac: MacAddr,
}

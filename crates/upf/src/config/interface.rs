//! An interface of the user plane function: its own addresses, and who is around it.

use std::net::IpAddr;

use dray_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::filter::Prefix;

/// N3 or N6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its IP addresses: one of each version at most.
    pub addresses: Vec<IpAddr>,
    /// The longest IP packet that it sends, in bytes.
    #[serde(default = "InterfaceConfig::default_mtu")]
    pub mtu: u16,
    /// Through whom others are reached; whoever has no route is on the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// N3: networks of gNBs, any of which may send into every session's tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gnbs: Vec<Prefix>,
    /// Those whose Ethernet address need not be asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
}

impl InterfaceConfig {
    fn default_mtu() -> u16 {
        1500
    }
}

/// Through whom a network is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The network.
    pub to: Prefix,
    /// A neighbour; for a host on the link itself: that host.
    pub via: IpAddr,
}

/// A neighbour whose address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address.
    pub mac: MacAddr,
}

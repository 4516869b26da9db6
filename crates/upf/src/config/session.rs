//! A PDU session as it is told: rules in the words of PFCP (TS 29.244).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::filter::{Filter, Prefix};

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    /// Session endpoint identifier.
    pub seid: u64,
    /// The user's addresses: IPv4 addresses, and IPv6 prefixes of 64 bits.
    pub ue: Vec<Prefix>,
    /// Packet detection rules.
    pub pdrs: Vec<Pdr>,
    /// Forwarding action rules.
    pub fars: Vec<Far>,
    /// QoS enforcement rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qers: Vec<Qer>,
    /// Usage reporting rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urrs: Vec<Urr>,
}

/// A side of the user plane function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// N3: the gNBs.
    Access,
    /// N6: the data network.
    Core,
}

/// Which packets, and what is done with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pdr {
    /// Its number in the session.
    pub id: u16,
    /// Rules of a lower value are tried first.
    pub precedence: u32,
    /// Where the packets come from.
    pub from: Side,
    /// From access: the tunnel at our end through which they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teid: Option<u32>,
    /// From access: their QoS flows; none given: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qfis: Vec<u8>,
    /// SDF filters, one of which lets a packet pass; none given: any packet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// Type of service or traffic class, as value and mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos: Option<[u8; 2]>,
    /// The application that they are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// What is done with them.
    pub far: u32,
    /// Which limits they keep to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qers: Vec<u32>,
    /// Where they are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urrs: Vec<u32>,
}

/// What is done with packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Far {
    /// Its number in the session.
    pub id: u32,
    /// What is done.
    pub action: Action,
    /// The tunnel at a gNB's end, where packets are forwarded to access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
}

/// What is done with a packet. Duplicating packets for interception is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It goes on: with a tunnel to access, without one to core.
    Forward,
    /// It is dropped.
    Drop,
    /// It is kept until the rule changes, and the control plane is told that there is something.
    Buffer,
}

/// The end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    /// The gNB's address.
    pub gnb: IpAddr,
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// The DSCP of the outer header: "transport level marking" in PFCP.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dscp: u8,
}

fn is_zero(dscp: &u8) -> bool {
    *dscp == 0
}

/// A gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Packets pass.
    #[default]
    Open,
    /// They are dropped.
    Closed,
}

/// Limits of a QoS flow, or of the session: those that all its rules name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qer {
    /// Its number in the session.
    pub id: u32,
    /// QoS flow identifier that packets to access are marked with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qfi: Option<u8>,
    /// For what comes from access.
    #[serde(default)]
    pub gate_uplink: Gate,
    /// For what goes to access.
    #[serde(default)]
    pub gate_downlink: Gate,
    /// Maximum bit rate from access, in 1000 bits per second of IP packets; none: any rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbr_uplink_kbps: Option<u64>,
    /// The same to access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbr_downlink_kbps: Option<u64>,
}

/// What is counted: bytes of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Volume {
    /// Both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// From access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<u64>,
    /// To access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downlink: Option<u64>,
}

/// Counts packets, after all limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Urr {
    /// Its number in the session.
    pub id: u32,
    /// A report each time that so many more bytes have been counted.
    #[serde(default)]
    pub threshold: Volume,
    /// A report, and no more packets, once so many bytes have been counted.
    #[serde(default)]
    pub quota: Volume,
}

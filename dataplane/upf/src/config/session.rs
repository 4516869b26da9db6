//! Configuration of a PDU session, in the terms of PFCP (TS 29.244).

use std::net::IpAddr;

use dray_wire::gtpu::Direction;
use serde::{Deserialize, Serialize};

use super::filter::{Filter, Prefix};
use super::teid;

/// A PDU session.
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

/// Names of directions in the configuration: the interface that the packets come from.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Direction")]
enum SourceInterface {
    /// N3: the gNBs.
    #[serde(rename = "access")]
    Uplink,
    /// N6: the data network.
    #[serde(rename = "core")]
    Downlink,
}

/// A packet detection rule: which packets match, and what is done with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pdr {
    /// Number of the rule in the session.
    pub id: u16,
    /// Precedence: rules with lower values are tried first.
    pub precedence: u32,
    /// Direction of the packets.
    #[serde(rename = "from", with = "SourceInterface")]
    pub direction: Direction,
    /// From access: TEID of the tunnel at the UPF's end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "teid::option")]
    pub teid: Option<u32>,
    /// From access: QoS flows of the packets; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qfis: Vec<u8>,
    /// SDF filters, one of which must match; empty: any packet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// Type of service or traffic class, as value and mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos: Option<[u8; 2]>,
    /// Name of the application that the packets belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// ID of the FAR: what is done with the packets.
    pub far: u32,
    /// IDs of the QERs: limits on the packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qers: Vec<u32>,
    /// IDs of the URRs that count the packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urrs: Vec<u32>,
}

/// A forwarding action rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Far {
    /// Number of the rule in the session.
    pub id: u32,
    /// Action on packets.
    pub action: Action,
    /// Tunnel at the gNB's end, for packets forwarded to access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
}

/// Action on a packet. Duplication (for lawful interception) is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Forward the packet: with a tunnel to access, without one to core.
    Forward,
    /// Drop the packet.
    Drop,
    /// Buffer the packet until the rule changes, and notify the control plane of downlink data.
    Buffer,
}

/// The far end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    /// Address of the gNB.
    pub gnb: IpAddr,
    /// Tunnel endpoint identifier.
    #[serde(with = "teid")]
    pub teid: u32,
    /// DSCP of the outer header: "transport level marking" in PFCP.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dscp: u8,
}

fn is_zero(dscp: &u8) -> bool {
    *dscp == 0
}

/// State of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Packets pass.
    #[default]
    Open,
    /// Packets are dropped.
    Closed,
}

/// A QoS enforcement rule: limits of a QoS flow, or of the session if all its rules refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qer {
    /// Number of the rule in the session.
    pub id: u32,
    /// QoS flow identifier that packets to access are marked with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qfi: Option<u8>,
    /// Gate for packets from access.
    #[serde(default)]
    pub gate_uplink: Gate,
    /// Gate for packets to access.
    #[serde(default)]
    pub gate_downlink: Gate,
    /// Maximum bit rate from access, in 1000 bits per second of IP packets; `None`: any rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbr_uplink_kbps: Option<u64>,
    /// Maximum bit rate to access, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbr_downlink_kbps: Option<u64>,
}

/// Volume of IP packets, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Volume {
    /// Sum of both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Volume from access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<u64>,
    /// Volume to access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downlink: Option<u64>,
}

/// A usage reporting rule: counts packets that have passed all limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Urr {
    /// Number of the rule in the session.
    pub id: u32,
    /// Volume from one report to the next.
    #[serde(default)]
    pub threshold: Volume,
    /// Volume, counted since it was granted, after which a report is sent and further packets are
    /// dropped.
    #[serde(default)]
    pub quota: Volume,
}

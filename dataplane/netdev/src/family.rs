//! The generic netlink family `netdev` (Documentation/netlink/specs/netdev.yaml of the kernel): XDP
//! features of drivers, and NAPI instances, each of which polls a queue or a pair of them.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, parse_u32, parse_u64};

use crate::genetlink::{Genetlink, Message};

/// `linux/netdev.h`
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_NAPI_SET: u8 = 14;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;

/// The family, in one network namespace.
pub struct Netdev {
    socket: Genetlink,
    family: u16,
}

/// XDP features of an interface's driver (`enum netdev_xdp_act`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFeatures(pub u64);

/// A NAPI instance. It exists as long as the kernel polls it: a veth has some only while an XDP
/// program is attached or GRO is on, and any interface only while it is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Napi {
    /// Number of the instance in this network namespace.
    pub id: u32,
    /// Deferral of its interrupts.
    pub deferral: DeferralSettings,
}

/// Deferral of interrupts (Documentation/networking/napi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeferralSettings {
    /// How often in a row the timer may find nothing before interrupts are enabled again; 0: no
    /// deferral.
    pub defer_hard_irqs: u32,
    /// Period of the timer, in nanoseconds.
    pub gro_flush_timeout_ns: u64,
}

impl Netdev {
    /// Opens the family in the calling thread's network namespace; `None` if the kernel is too old
    /// (before 6.3).
    pub fn open() -> io::Result<Option<Self>> {
        let socket = Genetlink::open()?;
        let family = socket.family("netdev")?;
        Ok(family.map(|family| Self { socket, family }))
    }

    /// Returns the XDP features of each interface, by the interface's index. Needs no privilege.
    pub fn xdp_features(&self) -> io::Result<Vec<(u32, XdpFeatures)>> {
        let request = Message::new(self.family, NETDEV_CMD_DEV_GET);
        let replies = self.socket.exchange(request, NLM_F_DUMP)?;
        Ok(replies.iter().filter_map(parse_xdp_features).collect())
    }

    /// Returns the NAPI instances of the interface with the index `interface` that have their own
    /// deferral settings: none before Linux 6.13. Needs no privilege.
    pub fn napis(&self, interface: u32) -> io::Result<Vec<Napi>> {
        let request = Message::new(self.family, NETDEV_CMD_NAPI_GET)
            .with(NETDEV_A_NAPI_IFINDEX, &interface.to_ne_bytes());
        let replies = match self.socket.exchange(request, NLM_F_DUMP) {
            // Before Linux 6.8 none are listed.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(Vec::new()),
            replies => replies?,
        };
        Ok(replies.iter().filter_map(parse_napi).collect())
    }

    /// Sets the interrupt deferral of a NAPI instance, for the instance's lifetime. On NICs whose
    /// driver has settings for each queue, the next instance of the same queue inherits them.
    pub fn set(&self, napi: Napi) -> io::Result<()> {
        let Napi { id, deferral } = napi;
        let request = Message::new(self.family, NETDEV_CMD_NAPI_SET)
            .with(NETDEV_A_NAPI_ID, &id.to_ne_bytes())
            .with(NETDEV_A_NAPI_DEFER_HARD_IRQS, &deferral.defer_hard_irqs.to_ne_bytes())
            .with(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, &deferral.gro_flush_timeout_ns.to_ne_bytes());
        self.socket.exchange(request, NLM_F_ACK).map(drop)
    }
}

impl XdpFeatures {
    /// Returns true if the driver runs XDP programs itself.
    pub fn is_native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns true if AF_XDP sockets get frames without a copy.
    pub fn has_zero_copy(self) -> bool {
        self.0 & 8 != 0
    }
}

fn parse_xdp_features(message: &Message) -> Option<(u32, XdpFeatures)> {
    let index = parse_u32(message.attribute(NETDEV_A_DEV_IFINDEX)?).ok()?;
    let features = parse_u64(message.attribute(NETDEV_A_DEV_XDP_FEATURES)?).ok()?;
    Some((index, XdpFeatures(features)))
}

fn parse_napi(message: &Message) -> Option<Napi> {
    let number = |kind| parse_u32(message.attribute(kind)?).ok();
    // The kernel sends an integer of either length.
    let timeout = message.attribute(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT)?;
    let timeout = parse_u64(timeout).or_else(|_| parse_u32(timeout).map(u64::from)).ok()?;
    Some(Napi {
        id: number(NETDEV_A_NAPI_ID)?,
        deferral: DeferralSettings {
            defer_hard_irqs: number(NETDEV_A_NAPI_DEFER_HARD_IRQS)?,
            gro_flush_timeout_ns: timeout,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdp_features_of_a_driver_are_parsed() {
        let message = Message::new(1, 1).with(1, &2_u32.to_ne_bytes());
        assert_eq!(parse_xdp_features(&message), None);
        let message = message.with(3, &9_u64.to_ne_bytes());
        let (index, features) = parse_xdp_features(&message).unwrap();
        assert!(index == 2 && features.is_native() && features.has_zero_copy());
    }

    #[test]
    fn napi_without_deferral_is_ignored() {
        let old =
            Message::new(1, 11).with(1, &7_u32.to_ne_bytes()).with(2, &8200_u32.to_ne_bytes());
        assert_eq!(parse_napi(&old), None, "before Linux 6.13");
        let of = |timeout: &[u8]| {
            let message = Message::new(1, 11)
                .with(2, &8200_u32.to_ne_bytes())
                .with(5, &100_u32.to_ne_bytes())
                .with(6, timeout);
            parse_napi(&message).map(|napi| napi.deferral.gro_flush_timeout_ns)
        };
        assert_eq!(of(&50_000_u32.to_ne_bytes()), Some(50_000));
        assert_eq!(of(&5_000_000_000_u64.to_ne_bytes()), Some(5_000_000_000));
        assert_eq!(of(&[1, 2]), None);
    }
}

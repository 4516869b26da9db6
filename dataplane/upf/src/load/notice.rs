//! Messages from the user plane function about packets that it could not forward.

use dray_wire::ethernet::ETHERNET_LEN;
use dray_wire::gtpu::{self, message};
use dray_wire::ip::{Packet, protocol};
use dray_wire::udp::UDP_LEN;

/// A message about a packet of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// An error indication: no session has a tunnel with the packet's TEID.
    ErrorIndication,
    /// An ICMP error, in a tunnel or not.
    Icmp,
}

impl Notice {
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let bytes = frame.get(ETHERNET_LEN..)?;
        let packet = Packet::parse(bytes, bytes.len()).ok()?;
        let payload = bytes.get(packet.header_len..packet.len)?;
        if packet.protocol != protocol::UDP {
            return is_icmp_error(bytes).then_some(Self::Icmp);
        }
        let datagram = payload.get(UDP_LEN..)?;
        let header = gtpu::Header::parse(datagram, datagram.len()).ok()?;
        let inner = datagram.get(header.len..header.len + header.payload_len)?;
        match header.message {
            message::ERROR_INDICATION => Some(Self::ErrorIndication),
            message::G_PDU if is_icmp_error(inner) => Some(Self::Icmp),
            _ => None,
        }
    }
}

fn is_icmp_error(bytes: &[u8]) -> bool {
    let Ok(packet) = Packet::parse(bytes, bytes.len()) else { return false };
    let kind = bytes.get(packet.header_len).copied();
    match packet.protocol {
        // Destination unreachable, time exceeded, parameter problem.
        protocol::ICMP => matches!(kind, Some(3 | 11 | 12)),
        protocol::ICMPV6 => kind.is_some_and(|kind| kind < 128),
        _ => false,
    }
}

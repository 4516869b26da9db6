//! Headers around the user's packet in a tunnel.

use dray_wire::checksum;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::fragment::FragmentHeader;
use dray_wire::gtpu::{self, FIXED_LEN as GTP_FIXED, Header, message};
use dray_wire::ip::{self, Fragment, IPV4_LEN, Packet, ecn, protocol};
use dray_wire::udp::{UDP_LEN, Udp};

use super::super::header_buffer::{COPY_LEN, HEADROOM};
use super::super::reassembly::Part;
use crate::counters::DropReason;
use crate::interface::Interface;
use crate::matcher::qfis;

/// A user's packet in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Number of its frame in the chunk.
    pub(super) frame: u16,
    /// Position of the packet in the frame.
    pub(super) at: u16,
    /// Position of the packet in the header buffer.
    pub(super) buffer_at: u16,
    /// Length of the packet, as the tunnel's headers say.
    pub(super) len: u16,
    /// Bit of its QFI, as returned by [`qfis`].
    pub(super) qfis: u64,
    /// Congestion notification bits of the outer header.
    pub(super) ecn: u8,
    pub(super) teid: u32,
    /// Number of its session; until the session is found, that of the bucket to search.
    pub(super) slot: u32,
    /// Outer source address if it is IPv4; 0: see [`Uplink::sources`](super::Uplink).
    pub(super) gnb: u32,
}

/// A frame that is not a user's packet in a tunnel to us, as far as it was parsed.
pub(super) enum Odd {
    Drop(DropReason),
    /// The whole frame has to be parsed.
    Other,
    Fragment(Part),
}

impl From<DropReason> for Odd {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// The headers around a GTP-U message.
pub(super) struct Outer {
    pub(super) ethernet: Ethernet,
    pub(super) packet: Packet,
    pub(super) udp: Udp,
    /// Position of the message in the frame.
    pub(super) at: usize,
}

/// Parses the headers in front of a GTP-U message to us, in a frame of `len` bytes that begins with
/// `bytes`.
#[inline(always)]
pub(super) fn outer(bytes: &[u8], len: usize, own: &Interface) -> Result<Outer, Odd> {
    let ethernet = Ethernet::parse(bytes).ok_or(DropReason::NotIp)?;
    if ethernet.dst != own.mac {
        return Err(if ethernet.dst.is_group() {
            Odd::Other
        } else {
            DropReason::OtherHost.into()
        });
    }
    match ethernet.ethertype {
        ethertype::IPV4 | ethertype::IPV6 => {}
        ethertype::ARP => return Err(Odd::Other),
        _ => return Err(DropReason::NotIp.into()),
    }
    let packet = Packet::parse(&bytes[ETHERNET_LEN..], len - ETHERNET_LEN)
        .map_err(|_| DropReason::OuterIp)?;
    if packet.fragment != Fragment::Whole {
        return Err(fragment(ethernet, packet, bytes, own));
    }
    if !own.is_own(packet.dst) || packet.protocol != protocol::UDP {
        return Err(Odd::Other);
    }
    let at = ETHERNET_LEN + packet.header_len;
    let datagram = bytes.get(at..at + UDP_LEN).ok_or(Odd::Other)?;
    let udp = Udp::parse(datagram, packet.len - packet.header_len).ok_or(DropReason::OuterUdp)?;
    if udp.dst_port != gtpu::PORT {
        return Err(Odd::Other);
    }
    Ok(Outer { ethernet, packet, udp, at: at + UDP_LEN })
}

/// Classifies a fragment of an outer packet.
#[cold]
fn fragment(ethernet: Ethernet, packet: Packet, bytes: &[u8], own: &Interface) -> Odd {
    match FragmentHeader::parse(&packet, &bytes[ETHERNET_LEN..]) {
        Some(header) if own.is_own(packet.dst) => Odd::Fragment(Part { ethernet, packet, header }),
        _ => DropReason::OuterFragment.into(),
    }
}

/// Fast path: finds the user's packet behind IPv4 without options and GTP-U, with or without a
/// container. It reads each field once, at a position known at compile time; all other frames are
/// left to [`user_packet`].
#[inline(always)]
pub(super) fn usual_packet(bytes: &[u8; COPY_LEN], len: usize, own: &Interface) -> Option<Item> {
    const IP: usize = ETHERNET_LEN;
    const UDP: usize = IP + IPV4_LEN;
    const GTP: usize = UDP + UDP_LEN;
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().expect("within"));
    let ip: &[u8; IPV4_LEN] = bytes[IP..].first_chunk()?;
    let (ip_len, udp_len) = (usize::from(half(IP + 2)), usize::from(half(UDP + 4)));
    let is_for_us =
        bytes[..6] == own.mac.0 && own.v4.is_some_and(|v4| word(IP + 16) == u32::from(v4));
    // Version 4 without options, not a fragment, UDP.
    let is_ip = (half(IP - 2) == ethertype::IPV4)
        & (bytes[IP] == 0x45)
        & (word(IP + 6) & 0x3fff_00ff == u32::from(protocol::UDP));
    let fits = IP + ip_len <= len && IPV4_LEN + udp_len <= ip_len;
    let whole = GTP_FIXED + usize::from(half(GTP + 2));
    let gtp_fits = UDP_LEN + whole <= udp_len;
    // Flags and type; then, behind two fields that the flags do not cover, the container's headers.
    let (at, qfis) = match (half(GTP), word(GTP + 8) & 0xff, word(GTP + 12)) {
        (0x30ff, ..) => (GTP + GTP_FIXED, qfis(None)),
        (0x34ff, 0x85, container) if container & 0xfff0_00ff == 0x0110_0000 => {
            (GTP + gtpu::CONTAINER_LEN, qfis(Some((container >> 8) as u8)))
        }
        _ => return None,
    };
    let gnb = word(IP + 12);
    let is_usual = is_for_us & is_ip & fits & gtp_fits & (half(UDP + 2) == gtpu::PORT) & (gnb != 0);
    if !is_usual || GTP + whole < at || checksum::internet_of(ip) != 0 {
        return None;
    }
    Some(Item {
        frame: 0,
        at: at as u16,
        buffer_at: (HEADROOM + at) as u16,
        len: (GTP + whole - at) as u16,
        qfis,
        ecn: ip[1] & ecn::MASK,
        teid: word(GTP + 4),
        slot: 0,
        gnb,
    })
}

/// Finds the user's packet, and the outer source address; the caller fills the other fields of the
/// item.
pub(super) fn user_packet(bytes: &[u8], len: usize, own: &Interface) -> Result<(Item, u128), Odd> {
    let outer = outer(bytes, len, own)?;
    let header = match Header::parse(bytes.get(outer.at..).unwrap_or(&[]), outer.udp.payload_len) {
        Ok(header) if header.message == message::G_PDU => header,
        // The whole frame has to be parsed, even if it turns out to be invalid.
        _ => return Err(Odd::Other),
    };
    let item = Item {
        frame: 0,
        at: (outer.at + header.len) as u16,
        buffer_at: (HEADROOM + outer.at + header.len) as u16,
        len: header.payload_len as u16,
        qfis: qfis(header.container.map(|container| container.qfi)),
        ecn: outer.packet.tos & ecn::MASK,
        teid: header.teid,
        slot: 0,
        gnb: ip::as_ipv4(outer.packet.src).map_or(0, u32::from),
    };
    Ok((item, outer.packet.src))
}

//! The data path: two directions, each with workers on their own threads. A worker has all sessions
//! to itself; the accounts that packets use up are shared.

mod downlink;
mod head;
mod held;
mod lane;
mod passes;
mod reassembly;
mod sessions;
mod store;
mod uplink;

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use dray_port::Frame;
use dray_wire::gtpu;
use dray_wire::ip::{self, Header, IPV4_LEN, IPV6_LEN, protocol};
use dray_wire::udp::{UDP_LEN, Udp};

pub(crate) use downlink::Downlink;
pub(crate) use lane::Lane;
pub(crate) use sessions::{CHANGES, Change, Changes, Farewell, Sessions};
pub(crate) use store::{Store, Waiting};
pub(crate) use uplink::{MESSAGES_MAX, Uplink};

use passes::Passes;

/// Time to live of our own packets.
pub(crate) const TTL: u8 = 64;

/// Returns a packet from our GTP-U port to a peer's `port`; `None` if the versions of the addresses
/// differ.
pub(crate) fn datagram(src: IpAddr, dst: IpAddr, port: u16, payload: &[u8]) -> Option<Vec<u8>> {
    udp_packet((src, gtpu::PORT), (dst, port), payload)
}

/// Returns a UDP packet, with a checksum if IPv6 requires one; `None` if the versions of the
/// addresses differ.
pub(crate) fn udp_packet(
    (src, src_port): (IpAddr, u16),
    (dst, dst_port): (IpAddr, u16),
    payload: &[u8],
) -> Option<Vec<u8>> {
    let mut udp = [0; UDP_LEN];
    Udp { src_port, dst_port, payload_len: payload.len() }.write(&mut udp);
    let payload_len = (UDP_LEN + payload.len()) as u16;
    let (protocol, tos, ttl) = (protocol::UDP, 0, TTL);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = [0; IPV4_LEN];
            Header { src, dst, protocol, tos, ttl, payload_len }.write(&mut ip);
            Some([&ip[..], &udp, payload].concat())
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let mut ip = [0; IPV6_LEN];
            Header { src: a, dst: b, protocol, tos, ttl, payload_len }.write(&mut ip);
            let sum = ip::upper_checksum(src, dst, protocol, &[&udp, payload]);
            udp[6..].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
            Some([&ip[..], &udp, payload].concat())
        }
        _ => None,
    }
}

/// What a worker has besides its lane: the state of its direction.
pub(crate) enum State {
    Uplink(Box<Uplink>),
    Downlink(Box<Downlink>),
}

impl State {
    /// See [`Passes::take`].
    #[inline]
    pub(crate) fn take(&mut self, lane: &mut Lane, frames: &[Frame<'_>]) -> usize {
        match self {
            Self::Uplink(uplink) => uplink.take(lane, frames),
            Self::Downlink(downlink) => downlink.take(lane, frames),
        }
    }

    /// Applies changes from control threads, and takes packets from the other direction or from
    /// reassembly; returns true if there was anything. No change is applied while packets wait that
    /// the previous rules let pass.
    pub(crate) fn adopt(&mut self, lane: &mut Lane) -> bool {
        let mut any = match self {
            Self::Uplink(uplink) => uplink.prepare(lane),
            Self::Downlink(downlink) => downlink.prepare(lane),
        };
        for _ in 0..CHANGES {
            if lane.is_full() {
                break;
            }
            let Ok(mut change) = lane.changes.wanted.try_recv() else { break };
            self.change(lane, &mut change);
            any = true;
            // If the control thread does not take it back, its memory is freed here.
            let _ = lane.changes.done.try_send(change);
        }
        any
    }

    pub(crate) fn change(&mut self, lane: &mut Lane, change: &mut Change) {
        match self {
            Self::Uplink(uplink) => uplink.change(lane, change),
            Self::Downlink(downlink) => downlink.change(lane, change),
        }
        lane.changes.made.fetch_add(1, Ordering::Release);
    }
}

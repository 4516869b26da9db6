//! Frames of the users of a user plane function: test frames that rotate through the users, either
//! towards the function in GTP-U tunnels, or plain, from a server.
//!
//! ```text
//!            +-----+----+-----+------------------+
//!  uplink    | Eth | IP | UDP | GTP-U, container | IP packet of a test frame from a user
//!            +-----+----+-----+------------------+
//!  downlink  | Eth | IP packet of a test frame to a user
//!            +-----+
//! ```

use std::net::Ipv4Addr;

use dray_wire::ethernet::ETHERNET_LEN;
use dray_wire::gtpu::{self, CONTAINER_LEN, Container, Direction};
use dray_wire::ip::{Header, IPV4_LEN, protocol};
use dray_wire::test_frame::{self, FRAME_MIN};
use dray_wire::udp::{UDP_LEN, Udp};
use dray_wire::{Flow, checksum};
use serde::{Deserialize, Serialize};

/// Bytes that a tunnel puts between a frame's Ethernet header and its packet.
pub const TUNNEL_LEN: usize = IPV4_LEN + UDP_LEN + CONTAINER_LEN;

/// Users whose packets go through a user plane function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Number of users, with one session each.
    pub count: u32,
    /// Direction of their packets.
    pub direction: Direction,
    /// Tunnel from the gNB to the user plane function. Unused for a server's frames.
    pub tunnel: (Ipv4Addr, Ipv4Addr),
    /// Server to which users send their packets; the frames are addressed to the user plane
    /// function itself, as the next hop.
    pub server: Ipv4Addr,
}

impl Users {
    /// Address of the first user; the others follow it.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
    /// TEID of the first user's tunnels, at either end; the others follow it.
    pub const TEID: u32 = 1;
    /// QoS flow of all users.
    pub const QFI: u8 = 9;

    /// Returns the number of bytes by which a sender's frames are longer than test frames.
    pub(crate) fn sender_extra(&self) -> usize {
        if self.direction == Direction::Uplink { TUNNEL_LEN } else { 0 }
    }

    /// Returns the distance from one frame's user to the next one's: large, so that consecutive
    /// users are not neighbours in memory, and such that every user gets a turn.
    fn step(&self) -> u32 {
        let gcd = |mut a: u32, mut b: u32| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        // The golden section spreads any number of turns evenly (Knuth, TAOCP 3, section 6.4).
        let wanted = ((f64::from(self.count) * 0.618_034) as u32).max(1);
        (wanted..).find(|step| gcd(*step, self.count) == 1).unwrap_or(1) % self.count
    }
}

/// Rotates frames through the users.
#[derive(Debug)]
pub(crate) struct Turn {
    users: Users,
    step: u32,
    next: u32,
    /// Sum of the words of the packet's header, without the checksum and the user's address.
    header_sum: u32,
}

impl Turn {
    pub(crate) fn new(users: Users, frame: &[u8]) -> Self {
        let mut turn = Self { users, step: users.step(), next: 0, header_sum: 0 };
        let mut header: [u8; IPV4_LEN] =
            *frame[turn.packet()..].first_chunk().expect("a test frame's packet");
        header[10..12].fill(0);
        header[turn.address()..turn.address() + 4].fill(0);
        turn.header_sum = u32::from(!checksum::internet(&header));
        turn
    }

    /// Returns the offset of the user's packet in the frame.
    fn packet(&self) -> usize {
        ETHERNET_LEN + self.users.sender_extra()
    }

    /// Returns the offset of the user's address in the header.
    fn address(&self) -> usize {
        if self.users.direction == Direction::Uplink { 12 } else { 16 }
    }

    /// Takes back the users of the last `count` frames, which were not sent: they come next.
    pub(crate) fn take_back(&mut self, count: usize) {
        let users = u64::from(self.users.count);
        let back = count as u64 * u64::from(self.step) % users;
        self.next = ((u64::from(self.next) + users - back) % users) as u32;
    }

    /// Makes `frame` a packet of the next user.
    #[inline]
    pub(crate) fn put(&mut self, frame: &mut [u8]) {
        let (packet, address) = (self.packet(), self.address());
        if self.users.direction == Direction::Uplink {
            let teid = (Users::TEID + self.next).to_be_bytes();
            let at = packet - CONTAINER_LEN + 4;
            frame[at..at + 4].copy_from_slice(&teid);
        }
        let header: &mut [u8; IPV4_LEN] =
            frame[packet..].first_chunk_mut().expect("a test frame's packet");
        let user = u32::from(Users::ADDRESS) + self.next;
        header[address..address + 4].copy_from_slice(&user.to_be_bytes());
        let sum = self.header_sum + (user >> 16) + (user & 0xffff);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        let next = u64::from(self.next) + u64::from(self.step);
        let count = u64::from(self.users.count);
        self.next = (if next >= count { next - count } else { next }) as u32;
    }
}

/// Builds a frame as the sender sends it: after any tunnel headers follows a test frame of `size`
/// bytes without its Ethernet header.
pub(crate) fn build(users: &Users, flow: &Flow, size: usize) -> Vec<u8> {
    if users.direction == Direction::Downlink {
        return test_frame::build(flow, size);
    }
    let plain = test_frame::build(&Flow { dst_ip: users.server, ..*flow }, size);
    let (ethernet, packet) = plain.split_at(ETHERNET_LEN);
    let mut gtp = [0; CONTAINER_LEN];
    let container = Container {
        direction: Direction::Uplink,
        qfi: Users::QFI,
        reflective: false,
        paging_policy: None,
    };
    gtpu::write_gpdu(&mut gtp, 0, Some(container), packet.len());
    let mut udp = [0; UDP_LEN];
    let payload_len = CONTAINER_LEN + packet.len();
    Udp { src_port: gtpu::PORT, dst_port: gtpu::PORT, payload_len }.write(&mut udp);
    let mut ip = [0; IPV4_LEN];
    let (src, dst) = users.tunnel;
    let payload_len = (UDP_LEN + payload_len) as u16;
    Header { src, dst, protocol: protocol::UDP, tos: 0, ttl: 64, payload_len }.write(&mut ip);
    [ethernet, &ip, &udp, &gtp, packet].concat()
}

/// Returns the head of the test frame inside a tunnel; `head` holds the first bytes of the outer
/// frame. `None` if the frame is not a user's packet in a tunnel as built here.
pub(crate) fn unwrap(head: &[u8; TUNNEL_LEN + FRAME_MIN]) -> Option<[u8; FRAME_MIN]> {
    let outer = &head[ETHERNET_LEN..ETHERNET_LEN + TUNNEL_LEN];
    let is_ours = head[12..14] == [8, 0]
        && outer[0] == 0x45
        && outer[9] == protocol::UDP
        && outer[22..24] == gtpu::PORT.to_be_bytes()
        && outer[29] == gtpu::message::G_PDU;
    let mut inner: [u8; FRAME_MIN] = *head.last_chunk()?;
    inner[..ETHERNET_LEN].copy_from_slice(&head[..ETHERNET_LEN]);
    is_ours.then_some(inner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use dray_wire::gtpu::Header as Gtpu;
    use dray_wire::ip::{self, Packet};

    use super::*;

    fn users(count: u32, direction: Direction) -> Users {
        let (tunnel, server) =
            (([10, 0, 3, 2].into(), [10, 0, 3, 1].into()), Flow::default().dst_ip);
        Users { count, direction, tunnel, server }
    }

    #[test]
    fn every_user_gets_valid_headers_in_turn() {
        for count in [1, 2, 3, 1000, 8000] {
            for direction in Direction::ALL {
                let users = users(count, direction);
                let mut frame = build(&users, &Flow::default(), 512);
                assert_eq!(frame.len(), 512 + users.sender_extra());
                let mut turn = Turn::new(users, &frame);
                let mut seen = HashSet::new();
                for _ in 0..count {
                    turn.put(&mut frame);
                    let mut packet = Packet::parse(&frame[14..], frame.len() - 14).unwrap();
                    let mut teid = None;
                    if direction == Direction::Uplink {
                        let message = &frame[14 + 28..];
                        let header = Gtpu::parse(message, message.len()).unwrap();
                        assert_eq!(header.len, CONTAINER_LEN);
                        teid = Some(header.teid);
                        packet = Packet::parse(&message[header.len..], header.payload_len).unwrap();
                    }
                    let user = if direction == Direction::Uplink { packet.src } else { packet.dst };
                    let user = u32::from(ip::as_ipv4(user).unwrap());
                    let number = user - u32::from(Users::ADDRESS);
                    assert!(teid.is_none_or(|teid| teid == number + Users::TEID));
                    assert!(number < count && seen.insert(number));
                }
                assert_eq!(turn.next, 0, "and the first one's again");
                turn.put(&mut frame);
                turn.put(&mut frame);
                turn.take_back(2);
                assert_eq!(turn.next, 0);
            }
        }
    }

    #[test]
    fn tunnelled_frame_is_a_test_frame() {
        let users = users(5, Direction::Uplink);
        let mut frame = build(&users, &Flow::default(), 100);
        let stamp = test_frame::Stamp { stream: 1, sequence: 2, ticks: 3 };
        test_frame::stamp(&mut frame[TUNNEL_LEN..], stamp);
        let inner = unwrap(frame.first_chunk().unwrap()).unwrap();
        let verdict = test_frame::read_head(&inner, frame.len() - TUNNEL_LEN);
        assert_eq!(verdict, test_frame::Verdict::Intact(stamp));
        assert_eq!(unwrap(test_frame::build(&Flow::default(), 200).first_chunk().unwrap()), None);
    }
}

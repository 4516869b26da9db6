//! The flow of a frame: it selects the outer source port, by which network cards and routers divide
//! datagrams among queues and paths (RFC 7348, section 5).

use dray_wire::ethernet::{ETHERNET_LEN, ethertype};
use dray_wire::ip::{IPV4_LEN, IPV6_LEN, protocol};

use crate::Frame;

/// Bytes of an Ethernet header, an IPv6 header and two ports.
const HEAD_LEN: usize = ETHERNET_LEN + IPV6_LEN + 4;

/// Returns the number of the flow that a frame belongs to, of `flows`: the same for all frames with
/// the same IP addresses and ports, or, if it is not of IP, MAC addresses.
#[inline]
pub(super) fn of(frame: &Frame<'_>, flows: u8) -> u8 {
    if flows == 1 {
        return 0;
    }
    let mut head = [0; HEAD_LEN];
    let len = frame.copy_first::<HEAD_LEN, HEAD_LEN>(&mut head);
    let hash = hash(&head, len);
    ((u64::from(hash) * u64::from(flows)) >> 32) as u8
}

fn hash(head: &[u8; HEAD_LEN], len: usize) -> u32 {
    const V4_END: usize = ETHERNET_LEN + IPV4_LEN;
    const V6_END: usize = ETHERNET_LEN + IPV6_LEN;
    let has_ports = |number: u8| [protocol::UDP, protocol::TCP].contains(&number);
    let fields = match u16::from_be_bytes([head[12], head[13]]) {
        ethertype::IPV4 if len >= V4_END => {
            // Only the first fragment of a packet has ports.
            let fragment = u16::from_be_bytes([head[20], head[21]]) & 0x3fff;
            let ports = head[14] == 0x45 && fragment == 0 && has_ports(head[23]);
            V4_END - 8..if ports { V4_END + 4 } else { V4_END }
        }
        ethertype::IPV6 if len >= V6_END => {
            V6_END - 32..if has_ports(head[20]) { V6_END + 4 } else { V6_END }
        }
        _ => 0..12,
    };
    let words = head[fields].chunks_exact(4);
    let mixed = words.fold(0u64, |hash, word| {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        (hash.rotate_left(5) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use dray_wire::{Flow, MacAddr, test_frame};

    use super::*;

    fn of_bytes(bytes: &[u8]) -> u8 {
        of(&Frame::from(bytes), 8)
    }

    #[test]
    fn flows_are_spread_and_stay_together() {
        let flows = (0..100).map(|port| test_frame::build(&Flow::default().nth(port), 64));
        let spread: HashSet<_> = flows.map(|frame| of_bytes(&frame)).collect();
        assert_eq!(spread.len(), 8);
        let [short, long] = [64, 1500].map(|len| test_frame::build(&Flow::default(), len));
        assert_eq!(of_bytes(&short), of_bytes(&long));
        assert_eq!(of(&Frame::from(&short[..]), 1), 0);
    }

    #[test]
    fn fragments_of_a_packet_stay_together() {
        let mut first = test_frame::build(&Flow::default(), 64);
        first[20] |= 0x20;
        let mut second = first.clone();
        second[21] = 9;
        second[34..38].fill(0x77);
        assert_eq!(hash_of(&first), hash_of(&second));
    }

    #[test]
    fn other_frames_are_spread_by_address() {
        let arp =
            |id| [&MacAddr([0xff; 6]).0[..], &MacAddr::local(id).0, &[8, 6], &[0; 28]].concat();
        let spread: HashSet<_> = (0..100).map(|id| of_bytes(&arp(id))).collect();
        assert_eq!(spread.len(), 8);
        assert_eq!(of_bytes(&[0; 14]), of_bytes(&[0; 14]));
    }

    fn hash_of(bytes: &[u8]) -> u32 {
        let mut head = [0; HEAD_LEN];
        let len = Frame::from(bytes).copy_from(0, &mut head);
        hash(&head, len)
    }
}

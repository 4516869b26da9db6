//! Tests against etherparse, which builds the packets and checks what becomes of them.

use std::num::NonZeroU16;

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::checksum;

/// A packet of TCP or UDP, as etherparse builds it: with the right checksum.
fn packet(is_v6: bool, is_tcp: bool, tags: usize, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let vlan = |number: u16| etherparse::VlanId::try_new(number).unwrap();
    let mut bytes = Vec::new();
    macro_rules! write {
        ($builder:expr) => {{
            let builder = $builder;
            if is_tcp {
                let tcp = builder.tcp(1000, 2000, 0xffff_ff00, 4096).ack(7).psh().fin();
                let options = etherparse::TcpOptionElement::Timestamp(1, 2);
                tcp.options(&[options]).unwrap().write(&mut bytes, payload).unwrap();
            } else {
                builder.udp(1000, 2000).write(&mut bytes, payload).unwrap();
            }
        }};
    }
    let (v4, v6) = (([10, 0, 0, 1], [10, 0, 0, 2]), ([0xfd; 16], [0xfe; 16]));
    macro_rules! network {
        ($builder:expr) => {{
            let builder = $builder;
            if is_v6 {
                write!(builder.ipv6(v6.0, v6.1, 64))
            } else {
                write!(builder.ipv4(v4.0, v4.1, 64))
            }
        }};
    }
    match tags {
        0 => network!(builder),
        1 => network!(builder.single_vlan(vlan(7))),
        _ => network!(builder.double_vlan(vlan(8), vlan(7))),
    }
    for _ in 2..tags {
        bytes.splice(12..12, [0x88, 0xa8, 0, 9]);
    }
    bytes
}

/// Puts the sum of the pseudo-header into the checksum's field, as a sender that leaves the rest to
/// the device does.
fn make_partial(bytes: &mut [u8]) -> Layout {
    let layout = Layout::of(bytes, bytes.len()).expect("a packet");
    let mut started = bytes.to_vec();
    let mut sum = checksum::Sum::default();
    let ip = layout.network;
    sum.add(if layout.is_v6 { &bytes[ip + 8..ip + 40] } else { &bytes[ip + 12..ip + 20] });
    sum.add(&((layout.end - layout.start) as u32).to_be_bytes());
    sum.add(&[0, if layout.transport == Transport::Tcp { 6 } else { 17 }]);
    let at = layout.checksum();
    bytes[at..at + 2].copy_from_slice(&(!sum.finish()).to_be_bytes());
    assert_eq!(start(&mut started), Some(layout));
    assert_eq!(started, bytes);
    layout
}

/// Fields of a frame that etherparse finds intact.
struct Seen {
    sequence: u32,
    id: u16,
    last: bool,
    payload: Vec<u8>,
}

fn see(frame: &[u8]) -> Seen {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a valid frame");
    let (id, addresses) = match sliced.net.as_ref().expect("an IP packet") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            (header.identification, Ok(header))
        }
        NetSlice::Ipv6(ip) => (0, Err(ip.header().to_header())),
        other => panic!("{other:?}"),
    };
    match sliced.transport.expect("TCP or UDP") {
        TransportSlice::Tcp(tcp) => {
            let header = tcp.to_header();
            let sum = match &addresses {
                Ok(ip) => header.calc_checksum_ipv4(ip, tcp.payload()).unwrap(),
                Err(ip) => header.calc_checksum_ipv6(ip, tcp.payload()).unwrap(),
            };
            assert_eq!(same(sum), same(header.checksum));
            assert_eq!(header.fin, header.psh);
            let sequence = header.sequence_number;
            Seen { sequence, id, last: header.fin, payload: tcp.payload().to_vec() }
        }
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let sum = match &addresses {
                Ok(ip) => header.calc_checksum_ipv4(ip, udp.payload()).unwrap(),
                Err(ip) => header.calc_checksum_ipv6(ip, udp.payload()).unwrap(),
            };
            assert_eq!(same(sum), same(header.checksum));
            Seen { sequence: 0, id, last: false, payload: udp.payload().to_vec() }
        }
        other => panic!("{other:?}"),
    }
}

/// Zero has two forms.
fn same(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

fn frames(bytes: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let finish = Finish::new(bytes, offload).expect("a packet");
    let frame = |index| {
        let mut head = [0; HEADERS_MAX];
        let len = finish.head(index, &mut head);
        let frame = [&head[..len], &bytes[finish.part(index)]].concat();
        assert!(frame.len() <= finish.frame_max());
        frame
    };
    (0..finish.count()).map(frame).collect()
}

proptest! {
    #[test]
    fn segments_are_valid_packets(
        is_v6: bool, is_tcp: bool, tags in 0usize..4,
        payload in prop::collection::vec(any::<u8>(), 1..9000),
        size in 16u16..3000,
    ) {
        let mut bytes = packet(is_v6, is_tcp, tags, &payload);
        make_partial(&mut bytes);
        let size = NonZeroU16::new(size).unwrap();
        let offload = if is_tcp { Offload::Tcp(size) } else { Offload::Udp(size) };
        let frames = frames(&bytes, offload);
        prop_assert_eq!(frames.len(), payload.len().div_ceil(usize::from(size.get())));
        let mut together = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let seen = see(frame);
            if is_tcp {
                prop_assert_eq!(seen.sequence, 0xffff_ff00_u32.wrapping_add(together.len() as u32));
                prop_assert_eq!(seen.last, index + 1 == frames.len());
            }
            prop_assert!(is_v6 || usize::from(seen.id) == index);
            together.extend(seen.payload);
        }
        prop_assert_eq!(together, payload);
    }

    #[test]
    fn partial_checksum_becomes_whole(
        is_v6: bool, is_tcp: bool, tags in 0usize..5,
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let whole = packet(is_v6, is_tcp, tags, &payload);
        let mut partial = whole.clone();
        let layout = make_partial(&mut partial);
        prop_assert_eq!(frames(&partial, Offload::None), vec![partial.clone()]);
        prop_assert_eq!(frames(&partial, Offload::Checksum), vec![whole.clone()]);
        let mut finished = partial.clone();
        complete(&mut partial, layout.start, layout.checksum());
        prop_assert_eq!(&partial, &whole);
        finish(&mut finished).unwrap();
        prop_assert_eq!(finished, whole);
    }

    #[test]
    fn partial_checksum_is_recognized(
        is_v6: bool, is_tcp: bool, tags in 0usize..5, padding in 0usize..4,
        mut payload in prop::collection::vec(any::<u8>(), 2..300),
    ) {
        let mut whole = packet(is_v6, is_tcp, tags, &payload);
        let mut partial = whole.clone();
        let layout = make_partial(&mut partial);
        let at = layout.checksum();
        partial.extend(&[7; 4][..padding]);
        prop_assert!(is_suspect(&partial, partial.len()));
        let right = [whole[at], whole[at + 1]];
        if right != partial[at..at + 2] {
            prop_assert_eq!(missing_checksum(&partial), Some((at, right)));
            prop_assert!(!is_suspect(&whole, whole.len()));
        }
        // A packet whose right checksum is the sum of its pseudo-header is left alone.
        let (field, start) = (partial[at..at + 2].to_vec(), layout.payload - layout.start);
        payload[..2].fill(0);
        whole = packet(is_v6, is_tcp, tags, &payload);
        let now = u16::from_be_bytes([whole[at], whole[at + 1]]);
        let wanted = u16::from_be_bytes([field[0], field[1]]);
        let mut sum = checksum::Sum::default();
        sum.add(&now.to_be_bytes());
        sum.add(&(!wanted).to_be_bytes());
        let fill = !sum.finish();
        prop_assert!(start % 2 == 0);
        whole[layout.payload..layout.payload + 2].copy_from_slice(&fill.to_be_bytes());
        whole[at..at + 2].copy_from_slice(&field);
        prop_assert!(is_suspect(&whole, whole.len()));
        prop_assert_eq!(missing_checksum(&whole), None);
    }

    #[test]
    fn header_round_trips(
        is_v6: bool, is_tcp: bool, tags in 0usize..5,
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        size in 1u16..2000, ecn: bool,
    ) {
        let mut bytes = packet(is_v6, is_tcp, tags, &payload);
        let layout = make_partial(&mut bytes);
        let size = NonZeroU16::new(size).unwrap();
        let segments = match (is_tcp, ecn) {
            (true, false) => Offload::Tcp(size),
            (true, true) => Offload::TcpEcn(size),
            (false, _) => Offload::Udp(size),
        };
        for offload in [Offload::None, Offload::Checksum, segments] {
            let header = VirtioNet::of(offload, &layout, bytes.len()).unwrap();
            prop_assert_eq!(VirtioNet::read(header.bytes()), header);
            let whole = offload.segment().is_some() && payload.len() <= usize::from(size.get());
            let expected = if whole { Offload::Checksum } else { offload };
            let accepted = header.check(&bytes, bytes.len(), Offloads::ALL);
            prop_assert_eq!(accepted, Ok(Accept::Carry(expected)));
            // The checksum of merged packets need not be partial.
            let merged = VirtioNet { flags: 2, ..header };
            if offload.segment().is_some() {
                let checked = merged.check(&bytes, bytes.len(), Offloads::ALL);
                prop_assert_eq!(checked, Err(Invalid::GsoWithoutChecksum));
                let mut frame = bytes.clone();
                frame[layout.checksum()] ^= 0x55;
                let flags = 3;
                prop_assert_eq!(
                    merged.with_partial_checksum(&mut frame),
                    VirtioNet { flags, ..header }
                );
                prop_assert_eq!(&frame, &bytes);
            }
        }
    }

    /// Whatever a peer writes, nothing panics, and what is accepted can be finished.
    #[test]
    fn any_header_and_bytes_are_checked(
        header: [u8; VIRTIO_NET_LEN], is_v6: bool, is_tcp: bool, tags in 0usize..5,
        payload in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((0usize..300, any::<u8>()), 0..4),
        near: bool, cut in 0usize..300,
    ) {
        let mut bytes = packet(is_v6, is_tcp, tags, &payload);
        let layout = make_partial(&mut bytes);
        let mut header = VirtioNet::read(header);
        if near {
            // Random headers seldom match a packet.
            let size = NonZeroU16::new(header.gso_size.max(1)).unwrap();
            let offload = if is_tcp { Offload::Tcp(size) } else { Offload::Udp(size) };
            header = VirtioNet::of(offload, &layout, bytes.len()).unwrap();
        }
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut / 3));
        match header.check(&bytes, bytes.len(), Offloads::ALL) {
            Ok(Accept::Complete { start, at }) => complete(&mut bytes, start, at),
            Ok(Accept::CompleteSctp { start, end }) => complete_sctp(&mut bytes[..end], start),
            Ok(Accept::Carry(offload)) if offload != Offload::None => {
                prop_assert!(frames(&bytes, offload).len() <= SEGMENTS_MAX);
                let layout = Layout::of(&bytes, bytes.len()).unwrap();
                let again = VirtioNet::of(offload, &layout, bytes.len()).unwrap();
                let accepted = again.check(&bytes, bytes.len(), Offloads::ALL);
                prop_assert_eq!(accepted, Ok(Accept::Carry(offload)));
            }
            Ok(Accept::Carry(_)) | Err(_) => {}
        }
    }
}

#[test]
fn hostile_headers_are_refused_with_reason() {
    let mut bytes = packet(false, true, 0, &[7; 4000]);
    let layout = make_partial(&mut bytes);
    let size = NonZeroU16::new(1448).unwrap();
    let good = VirtioNet::of(Offload::Tcp(size), &layout, bytes.len()).unwrap();
    let check = |header: VirtioNet| header.check(&bytes, bytes.len(), Offloads::ALL).unwrap_err();
    assert_eq!(check(VirtioNet { gso_size: 0, ..good }), Invalid::GsoSize(0));
    assert_eq!(check(VirtioNet { gso_type: 4, ..good }), Invalid::Mismatch);
    assert_eq!(check(VirtioNet { gso_type: 5, ..good }), Invalid::Mismatch);
    assert_eq!(check(VirtioNet { gso_type: 3, ..good }), Invalid::GsoType(3));
    assert_eq!(check(VirtioNet { gso_type: 0x83, ..good }), Invalid::GsoType(0x83));
    assert_eq!(check(VirtioNet { gso_type: 0x21, ..good }), Invalid::GsoType(0x21));
    assert_eq!(check(VirtioNet { flags: 0, ..good }), Invalid::GsoWithoutChecksum);
    assert_eq!(check(VirtioNet { gso_type: 0x84, ..good }), Invalid::Mismatch);
    assert_eq!(check(VirtioNet { hdr_len: 4500, ..good }), Invalid::HeaderLength(4500));
    for (start, offset) in [(35, 16), (34, 14), (4064, 16), (u16::MAX, u16::MAX), (0, 0)] {
        let header = VirtioNet { csum_start: start, csum_offset: offset, ..good };
        assert_eq!(check(header), Invalid::Checksum { start, offset });
    }
    for negotiated in [
        Offloads::NONE,
        Offloads { tcp4: false, ..Offloads::ALL },
        Offloads { checksum: false, ..Offloads::ALL },
    ] {
        assert_eq!(good.check(&bytes, bytes.len(), negotiated), Err(Invalid::NotNegotiated));
    }
    // Bytes behind the packet cannot be divided among segments.
    let padded = [&bytes[..], &[0; 3]].concat();
    assert_eq!(good.check(&padded, padded.len(), Offloads::ALL), Err(Invalid::Mismatch));
}

#[test]
fn other_checksum_is_completed_in_place() {
    // An ICMPv6 message, say: its checksum is not at a known position.
    let mut bytes: Vec<u8> = (0..100).collect();
    let header = VirtioNet { flags: 1, csum_start: 54, csum_offset: 2, ..VirtioNet::default() };
    let accepted = header.check(&bytes, bytes.len(), Offloads::ALL);
    assert_eq!(accepted, Ok(Accept::Complete { start: 54, at: 56 }));
    complete(&mut bytes, 54, 56);
    let sum: u16 = u16::from_be_bytes([bytes[56], bytes[57]]);
    bytes[56..58].copy_from_slice(&[56, 57]);
    assert_eq!(checksum::internet(&bytes[54..]), sum);
}

#[test]
fn sctp_checksum_is_completed_with_crc32c() {
    for (is_v6, tags) in [(false, 0), (true, 1)] {
        let mut bytes = packet(is_v6, false, tags, &[7; 101]);
        let start = Layout::of(&bytes, bytes.len()).unwrap().start;
        let ip = 14 + 4 * tags;
        bytes[if is_v6 { ip + 6 } else { ip + 9 }] = crate::ip::protocol::SCTP;
        bytes[start + 8..start + 12].fill(0);
        let sum = checksum::crc32c(&bytes[start..]);
        let end = bytes.len();
        bytes.extend([0; 3]);
        let header = VirtioNet {
            flags: 1,
            csum_start: start as u16,
            csum_offset: 8,
            ..VirtioNet::default()
        };
        let accepted = header.check(&bytes, bytes.len(), Offloads::ALL);
        assert_eq!(accepted, Ok(Accept::CompleteSctp { start, end }));
        complete_sctp(&mut bytes[..end], start);
        assert_eq!(bytes[start + 8..start + 12], sum.to_le_bytes());
    }
}

#[test]
fn checksum_at_odd_offset_is_completed() {
    let mut bytes: Vec<u8> = (0..101).collect();
    let header = VirtioNet { flags: 1, csum_start: 35, csum_offset: 3, ..VirtioNet::default() };
    let accepted = header.check(&bytes, bytes.len(), Offloads::ALL);
    assert_eq!(accepted, Ok(Accept::Complete { start: 35, at: 38 }));
    let before = bytes[35..].to_vec();
    complete(&mut bytes, 35, 38);
    assert_eq!(bytes[38..40], checksum::internet(&before).to_be_bytes());
}

/// A packet as in `packet`, with a hop-by-hop and a destination options header.
fn packet_with_extensions(is_tcp: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = packet(true, is_tcp, 0, payload);
    let number = std::mem::replace(&mut bytes[20], 0);
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    bytes.splice(54..54, [options(60), options(number)].concat());
    let len = u16::from_be_bytes([bytes[18], bytes[19]]) + 16;
    bytes[18..20].copy_from_slice(&len.to_be_bytes());
    bytes
}

#[test]
fn packet_with_ipv6_extension_headers_is_cut() {
    for is_tcp in [true, false] {
        let mut bytes = packet_with_extensions(is_tcp, &[7; 2500]);
        let layout = make_partial(&mut bytes);
        let size = NonZeroU16::new(1000).unwrap();
        let offload = if is_tcp { Offload::TcpEcn(size) } else { Offload::Udp(size) };
        let header = VirtioNet::of(offload, &layout, bytes.len()).unwrap();
        let accepted = header.check(&bytes, bytes.len(), Offloads::ALL);
        assert_eq!(accepted, Ok(Accept::Carry(offload)));
        let frames = frames(&bytes, offload);
        let lens: Vec<_> = frames.iter().map(|frame| see(frame).payload.len()).collect();
        assert_eq!(lens, [1000, 1000, 500]);
    }
}

proptest! {
    #[test]
    fn segments_in_tunnels_are_valid_packets(
        outer_v6: bool, tags in 0usize..3, has_sum: bool, options in 0usize..4,
        is_v6: bool, is_tcp: bool, inner_tags in 0usize..2,
        payload in prop::collection::vec(any::<u8>(), 1000..9000), size in 16u16..900,
    ) {
        let mut inner = packet(is_v6, is_tcp, inner_tags, &payload);
        let layout = make_partial(&mut inner);
        let mut message = vec![options as u8, 0, 0x65, 0x58, 0, 0, 7, 0];
        message.extend(vec![0xee; 4 * options]);
        message.extend(&inner);
        let mut bytes = packet(outer_v6, false, tags, &message);
        let outer = Layout::of(&bytes, bytes.len()).unwrap();
        if !has_sum {
            bytes[outer.checksum()..][..2].fill(0);
        }
        let start = bytes.len() - inner.len();
        let size = NonZeroU16::new(size).unwrap();
        let offload = if is_tcp { Offload::TcpEcn(size) } else { Offload::Udp(size) };
        let header = VirtioNet::of(offload, &layout, inner.len()).unwrap();
        let csum_start = header.csum_start + start as u16;
        let header = VirtioNet { csum_start, ..header };
        prop_assert!(header.check(&bytes, bytes.len(), Offloads::ALL).is_err());
        let (tunnel, found) = Tunnel::of(&header, &bytes).unwrap();
        prop_assert_eq!((tunnel.inner(), found), (start, offload));
        let mut together = Vec::new();
        for (index, segment) in frames(&bytes[start..], offload).iter().enumerate() {
            let mut frame = [&bytes[..start], segment].concat();
            tunnel.finish(&mut frame, index);
            if has_sum {
                let outer = see(&frame);
                prop_assert!(outer_v6 || usize::from(outer.id) == index);
            } else {
                prop_assert_eq!(&frame[outer.checksum()..][..2], [0, 0]);
                let now = Layout::of(&frame, frame.len()).unwrap();
                prop_assert_eq!((now.end, now.start), (frame.len(), outer.start));
            }
            together.extend(see(&frame[start..]).payload);
        }
        prop_assert_eq!(together, payload);
    }

    /// Whatever a kernel's header says, nothing panics.
    #[test]
    fn any_tunnel_is_checked(header: [u8; VIRTIO_NET_LEN], is_v6: bool,
        message in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = packet(is_v6, false, 0, &message);
        let _ = Tunnel::of(&VirtioNet::read(header), &bytes);
        let _ = Tunnel::of(&VirtioNet::read(header), &message);
    }
}

#[test]
fn shortest_segments_of_linux_are_accepted() {
    // An MSS of 48, less the longest options.
    let mut bytes = packet(false, true, 0, &vec![7; 65_535 - 52]);
    let layout = make_partial(&mut bytes);
    let offload = Offload::Tcp(NonZeroU16::new(8).unwrap());
    let header = VirtioNet::of(offload, &layout, bytes.len()).unwrap();
    let accepted = header.check(&bytes, bytes.len(), Offloads::ALL);
    assert_eq!(accepted, Ok(Accept::Carry(offload)));
    assert_eq!(Finish::new(&bytes, offload).unwrap().count(), 8186);
    let header = VirtioNet { gso_size: 7, ..header };
    let refused = header.check(&bytes, bytes.len(), Offloads::ALL);
    assert_eq!(refused, Err(Invalid::GsoSize(7)));
}

#[test]
fn ecn_flag_is_apart_from_the_type() {
    for (is_v6, kind) in [(false, 1), (true, 4)] {
        let mut bytes = packet(is_v6, true, 1, &[7; 4000]);
        let layout = make_partial(&mut bytes);
        let size = NonZeroU16::new(1448).unwrap();
        let plain = VirtioNet::of(Offload::Tcp(size), &layout, bytes.len()).unwrap();
        let ecn = VirtioNet::of(Offload::TcpEcn(size), &layout, bytes.len()).unwrap();
        assert_eq!((plain.gso_type, ecn.gso_type), (kind, kind | 0x80));
        let without = Offloads { ecn: false, ..Offloads::ALL };
        let check = |header: VirtioNet, takes| header.check(&bytes, bytes.len(), takes);
        assert_eq!(check(ecn, Offloads::ALL), Ok(Accept::Carry(Offload::TcpEcn(size))));
        assert_eq!(check(ecn, without), Err(Invalid::NotNegotiated));
        assert_eq!(check(plain, without), Ok(Accept::Carry(Offload::Tcp(size))));
        assert!(!without.handle(Offload::TcpEcn(size), &layout));
        assert!(!without.always_handle(Offload::TcpEcn(size)));
        // Without segmentation the flag has no meaning.
        let alone = VirtioNet { flags: 0, gso_type: 0x80, ..ecn };
        assert!(alone.is_plain());
        let partial = VirtioNet { gso_type: 0x80, ..ecn };
        assert_eq!(check(partial, without), Ok(Accept::Carry(Offload::Checksum)));
    }
}

#[test]
fn congestion_flag_is_in_the_first_segment_only() {
    let mut bytes = packet(false, true, 0, &[7; 100]);
    let layout = make_partial(&mut bytes);
    bytes[layout.start + 13] |= 0x80;
    let size = NonZeroU16::new(40).unwrap();
    for offload in [Offload::Tcp(size), Offload::TcpEcn(size)] {
        let frames = frames(&bytes, offload);
        let flags: Vec<u8> = frames.iter().map(|frame| frame[layout.start + 13]).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]);
    }
}

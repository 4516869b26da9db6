//! A frame leaves in the VLAN that it came in, whatever its bytes are and whenever they change.

use dray_switch::DropReason;

use crate::inline::{Inline, Sent};

const BROADCAST: [u8; 6] = [0xff; 6];
const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IPV4: [u8; 2] = [8, 0];
const TAG: [u8; 2] = [0x81, 0x00];
const SERVICE_TAG: [u8; 2] = [0x88, 0xa8];
/// Types of tags inside a tag.
const NESTED: [[u8; 2]; 5] = [TAG, SERVICE_TAG, [0x91, 0], [0x92, 0], [0x93, 0]];

/// Returns a broadcast of A with these tags, each a type and two bytes; 64 bytes without the tags.
fn frame(tags: &[([u8; 2], u16)]) -> Vec<u8> {
    of_len(tags, 64)
}

fn of_len(tags: &[([u8; 2], u16)], len: usize) -> Vec<u8> {
    let mut bytes = [BROADCAST, A].concat();
    for (kind, tag) in tags {
        bytes.extend(kind);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend(IPV4);
    bytes.extend((0..len - 14).map(|byte| byte as u8));
    bytes
}

fn at(port: &str, frame: Vec<u8>) -> (String, Vec<u8>) {
    (port.to_owned(), frame)
}

/// Returns a frame in shared memory, with `bytes` put at `place` after the switch has read it.
fn changed(frame: &[u8], place: usize, bytes: &[u8]) -> Sent {
    let mut later = frame.to_vec();
    later[place..place + bytes.len()].copy_from_slice(bytes);
    Sent { bytes: frame.to_vec(), later: Some(later) }
}

const PORTS: [&str; 5] = [
    "access10,vlan=10",
    "access20,vlan=20",
    "trunk,trunk=10+20",
    "native,trunk=20,native=10",
    "other,trunk=20,native=10",
];

#[test]
fn double_tag_cannot_leave_native_vlan() {
    let mut switch = Inline::of(&PORTS);
    for inner in NESTED {
        let sent = frame(&[(TAG, 0), (inner, 20)]);
        // Inside a tag of its own VLAN the inner tag is payload; without one it would be the outer
        // tag.
        let tagged = frame(&[(TAG, 10), (inner, 20)]);
        assert_eq!(switch.send("access10", sent.clone()), [at("trunk", tagged.clone())]);
        assert_eq!(switch.send("native", sent), [at("trunk", tagged.clone())]);
        assert_eq!(switch.send("trunk", tagged), []);
        let triple = frame(&[(TAG, 10), (inner, 20), (TAG, 20)]);
        assert_eq!(switch.send("trunk", triple), []);
    }
    // Counted at each port that would have transmitted it.
    assert_eq!(switch.drops("native", DropReason::DoubleTag), 5 * 3);
    assert_eq!(switch.drops("other", DropReason::DoubleTag), 5 * 4);
    assert_eq!(switch.drops("access10", DropReason::DoubleTag), 5 * 3);
}

#[test]
fn tagged_frames_do_not_enter_access_ports() {
    let mut switch = Inline::of(&PORTS);
    let kinds = NESTED.into_iter().flat_map(|kind| [(kind, 0), (kind, 10), (kind, 20)]);
    for (kind, tag) in kinds.filter(|kind| *kind != (TAG, 0)) {
        for port in ["access10", "native"] {
            if (port, kind, tag) == ("native", TAG, 20) {
                continue;
            }
            let before = switch.drops(port, DropReason::VlanNotAllowed);
            assert_eq!(switch.send(port, frame(&[(kind, tag)])), [], "{port} {kind:x?} {tag}");
            assert_eq!(switch.drops(port, DropReason::VlanNotAllowed), before + 1);
        }
    }
}

#[test]
fn tag_change_after_check_cannot_change_vlan() {
    let tag_20 = [TAG[0], TAG[1], 0, 20];
    for (from, sent, expected) in [
        // Untagged; it leaves untagged everywhere but at the trunk.
        ("access10", frame(&[]), ["native", "other"]),
        ("native", frame(&[]), ["access10", "other"]),
    ] {
        let mut switch = Inline::of(&PORTS);
        for (port, frame) in switch.send(from, changed(&sent, 12, &tag_20)) {
            // After the type comes payload, which may be anything.
            assert!(expected.contains(&&*port) || port == "trunk", "{port}");
            let kind = if port == "trunk" { &frame[16..18] } else { &frame[12..14] };
            assert_eq!(kind, IPV4, "{from} to {port}");
        }
    }
    // A tag that is removed, and one that stays.
    let mut switch = Inline::of(&PORTS);
    let sent = changed(&frame(&[(TAG, 10)]), 14, &[0, 20]);
    assert_eq!(
        switch.send("trunk", sent),
        ["access10", "native", "other"].map(|port| at(port, frame(&[])))
    );
    let sent = changed(&frame(&[(TAG, 10)]), 16, &tag_20);
    for (port, frame) in switch.send("trunk", sent) {
        assert_eq!(frame[12..14], IPV4, "{port}");
    }
    let sent = changed(&frame(&[(TAG, 20)]), 14, &[0, 10]);
    let mut tagged = switch.send("native", sent);
    tagged.retain(|(port, _)| port != "access20");
    assert_eq!(tagged, ["trunk", "other"].map(|port| at(port, frame(&[(TAG, 20)]))));
}

#[test]
fn address_change_after_lookup_is_ignored() {
    let mut switch = Inline::of(&PORTS);
    let arrived = switch.send("access10", changed(&frame(&[]), 0, &[9; 12]));
    assert_eq!(arrived.len(), 3);
    for (port, bytes) in arrived {
        assert_eq!(bytes[..12], frame(&[])[..12], "{port}");
    }
}

#[test]
fn frame_too_long_for_its_tag_is_dropped() {
    let mut switch = Inline::of(&PORTS);
    for len in 9010..=9018 {
        let (sent, tagged) = (of_len(&[], len), of_len(&[(TAG, 10)], len));
        let mut expected = vec![at("access10", sent.clone()), at("other", sent.clone())];
        let before = switch.drops("trunk", DropReason::TooLong);
        match tagged.len() <= 9018 {
            true => expected.insert(1, at("trunk", tagged)),
            false => assert_eq!(len, len.max(9015)),
        }
        assert_eq!(switch.send("native", sent), expected, "{len}");
        let dropped = u64::from(len > 9014);
        assert_eq!(switch.drops("trunk", DropReason::TooLong), before + dropped, "{len}");
    }
}

#[test]
fn short_frames_are_dropped_or_keep_every_byte() {
    let mut switch = Inline::of(&PORTS);
    let tagged = frame(&[(TAG, 10)]);
    for len in 0..30 {
        let arrived = switch.send("trunk", tagged[..len].to_vec());
        match len {
            0..18 => assert_eq!(arrived, [], "{len}"),
            // The tag's four bytes are removed.
            _ => {
                let bare = frame(&[])[..len - 4].to_vec();
                let expected = ["access10", "native", "other"].map(|port| at(port, bare.clone()));
                assert_eq!(arrived, expected, "{len}");
            }
        }
    }
    // Too short for a type field, or too short for the tag that the type announces.
    let counters = switch.counters("trunk");
    assert_eq!(counters.drops.get(DropReason::TooShort), 18);
    for len in 14..20 {
        let bare = frame(&[])[..len].to_vec();
        let arrived = switch.send("access10", bare.clone());
        assert_eq!(arrived.len(), 3, "{len}");
        assert!(arrived.iter().any(|(port, frame)| port == "native" && *frame == bare));
    }
}

#[test]
fn ports_without_vlans_keep_tags_unchanged() {
    let mut switch = Inline::of(&["a", "b", "c,vlan=10"]);
    for tags in [&[(TAG, 10)][..], &[(SERVICE_TAG, 10)], &[(TAG, 0), (TAG, 10)]] {
        let sent = frame(tags);
        assert_eq!(switch.send("a", sent.clone()), [at("b", sent)]);
    }
}

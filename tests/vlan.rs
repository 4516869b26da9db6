//! VLAN tags through ports of the kernel's, and through a switch between them.

mod common;

use std::time::{Duration, Instant};

use common::alone;
use common::veths::Veths;
use dray_port::{Frame, Port, scratch};

/// Much longer than any frame takes on a busy host.
const LIMIT: Duration = Duration::from_secs(20);

/// Types of tags: IEEE 802.1Q, and IEEE 802.1ad for the outer one of two.
const C_TAG: u16 = 0x8100;
const S_TAG: u16 = 0x88a8;

/// A frame with `tags` (type, and priority with VLAN), `len` bytes long without them, that is unlike
/// any other with the same tags and length.
fn frame(tags: &[(u16, u16)], len: usize, number: u8) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 0xbb, 0x02, 0, 0, 0, 0, 0xaa];
    for (kind, tag) in tags {
        frame.extend([kind.to_be_bytes(), tag.to_be_bytes()].concat());
    }
    // Local Experimental Ethertype 1 (IEEE 802).
    frame.extend([0x88, 0xb5, number]);
    let whole = len + 4 * tags.len();
    let at = frame.len();
    frame.extend((at..whole).map(|at| at as u8 ^ number));
    frame
}

/// Receives from `port` until `count` frames have come, or none more comes for a while.
fn receive(port: &mut Port, count: usize) -> Vec<Vec<u8>> {
    let (mut received, mut room) = (Vec::new(), scratch());
    let deadline = Instant::now() + LIMIT;
    while received.len() < count && Instant::now() < deadline {
        let take = &mut |lent: &[Frame<'_>]| {
            received.extend(lent.iter().map(|frame| frame.bytes(&mut room).to_vec()));
            lent.len()
        };
        port.rx[0].receive(take).unwrap();
    }
    received
}

/// Transmits `frames` one by one; those that the port says it does not take are left out.
fn transmit(port: &mut Port, frames: &[Vec<u8>]) {
    for frame in frames {
        let frame = Frame::from(&frame[..]);
        let deadline = Instant::now() + LIMIT;
        while port.tx[0].transmit(&[frame]).unwrap() == 0 {
            assert!(Instant::now() < deadline, "the port takes nothing");
        }
    }
}

/// Frames without tag and with every kind of it, of several lengths.
fn all_kinds(longest: usize) -> Vec<Vec<u8>> {
    let kinds: [&[(u16, u16)]; 7] = [
        &[],
        &[(C_TAG, 20)],
        &[(C_TAG, 0xe000 | 4094)],
        // A priority, and no VLAN.
        &[(C_TAG, 0x6000)],
        &[(C_TAG, 0)],
        &[(S_TAG, 20)],
        &[(C_TAG, 10), (C_TAG, 20)],
    ];
    let mut frames = Vec::new();
    for (number, tags) in (0..).zip(kinds) {
        for len in [60, 64, 200, 1000, longest - 4, longest] {
            // The kernel lets one tag of 802.1Q be longer than the MTU allows, and nothing else.
            let long = tags.len() > 1 || tags.iter().any(|(kind, _)| *kind == S_TAG);
            if !long || len + 4 * tags.len() <= longest {
                frames.push(frame(tags, len, number));
            }
        }
    }
    frames
}

#[test]
fn raw_port_receives_frames_with_their_vlan_tags() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[]);
    for mtu in [1500, 9000] {
        let (a, b) = (format!("a{mtu}"), format!("b{mtu}"));
        veths.add(&a, &b, 1, mtu);
        let frames = all_kinds(mtu as usize + 14);
        for batch in [1, 8] {
            let mut from = veths.open(&format!("raw:{a}"));
            let mut to = veths.open(&format!("raw:{b}?batch={batch}"));
            transmit(&mut from, &frames);
            let received = receive(&mut to, frames.len());
            for (received, sent) in received.iter().zip(&frames) {
                let len = |frame: &[u8]| frame.len();
                assert_eq!(received[..18], sent[..18], "batch={batch}");
                assert!(received == sent, "{} as {} bytes", len(sent), len(received));
            }
            assert_eq!(received.len(), frames.len());
            assert_eq!(to.rx[0].dropped().unwrap(), 0);
        }
    }
}

/// One frame that the kernel does not take costs no other frame, and does not end the port.
#[test]
fn raw_port_drops_only_the_frames_that_do_not_fit() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"]]);
    for batch in [1, 8] {
        let mut from = veths.open(&format!("raw:a?batch={batch}"));
        let mut to = veths.open("raw:b?batch=8");
        let good = [frame(&[], 60, 1), frame(&[(C_TAG, 20)], 1514, 2), frame(&[], 1514, 3)];
        let bad = [
            frame(&[], 1518, 4),
            frame(&[(S_TAG, 20)], 1514, 5),
            frame(&[(C_TAG, 20)], 1515, 6),
            vec![0xff; 13],
        ];
        let mixed = [&good[0], &bad[0], &bad[1], &good[1], &bad[2], &bad[3], &good[2]];
        let mixed: Vec<_> = mixed.iter().map(|frame| Frame::from(&frame[..])).collect();
        assert_eq!(from.tx[0].transmit(&mixed).unwrap(), mixed.len());
        assert_eq!(from.tx[0].dropped(), 4);
        assert!(receive(&mut to, 3) == good);
        for (frame, fits) in
            good.iter().map(|frame| (frame, true)).chain([(&bad[0], false), (&bad[2], false)])
        {
            assert_eq!(from.tx[0].accepts(&Frame::from(&frame[..])), fits, "{} bytes", frame.len());
        }
    }
}

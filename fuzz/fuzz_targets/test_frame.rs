//! Bytes from a port: any bytes get a verdict, and an intact frame is what a sender would have
//! written.
#![no_main]

use dray_wire::test_frame::{self, Stamp, Verdict};
use dray_wire::{FRAME_MIN, Flow, HEADERS_LEN, flow};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    judge(bytes);
    // Random bytes rarely have a valid checksum, so they also become the payload of a valid frame.
    if let Some((change, rest)) = bytes.split_first_chunk::<2>() {
        let mut frame = test_frame::build(&Flow::default(), FRAME_MIN + rest.len() % 2000);
        test_frame::stamp(&mut frame, Stamp { stream: 3, sequence: 5, ticks: 7 });
        let at = usize::from(u16::from_le_bytes(*change)) % frame.len();
        frame.iter_mut().skip(at).zip(rest).for_each(|(to, from)| *to = *from);
        judge(&frame);
    }
});

fn judge(bytes: &[u8]) {
    let payload = flow::udp_payload(bytes);
    if let Some(payload) = payload {
        assert!(payload.len() + HEADERS_LEN <= bytes.len());
        let mut reply = bytes.to_vec();
        flow::swap_addresses(&mut reply);
        assert_eq!(flow::udp_payload(&reply).map(<[u8]>::len), Some(payload.len()));
    }
    if let Verdict::Intact(stamp) = test_frame::read(bytes) {
        let payload = payload.expect("an intact frame has a payload");
        let mut again = test_frame::build(&Flow::default(), payload.len() + HEADERS_LEN);
        test_frame::stamp(&mut again, stamp);
        let again = flow::udp_payload(&again).expect("what we build is intact");
        // All but the checksum: zero has two forms there.
        assert_eq!(&again[2..], &payload[2..]);
    }
}

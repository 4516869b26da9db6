//! Bytes from a port: any bytes are judged, and what is intact says so again when it is rebuilt.
#![no_main]

use dray_wire::test_frame::{self, Verdict};
use dray_wire::{Flow, headers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(payload) = headers::udp_payload(bytes) {
        assert!(payload.len() + dray_wire::HEADERS_LEN <= bytes.len());
        let mut reply = bytes.to_vec();
        headers::swap_addresses(&mut reply);
        assert_eq!(headers::udp_payload(&reply).map(<[u8]>::len), Some(payload.len()));
    }
    if let Verdict::Intact(stamp) = test_frame::read(bytes) {
        let len = headers::udp_payload(bytes).expect("read found one").len();
        let mut again = test_frame::build(&Flow::default(), len + dray_wire::HEADERS_LEN);
        test_frame::stamp(&mut again, stamp);
        assert_eq!(test_frame::read(&again), Verdict::Intact(stamp));
    }
});

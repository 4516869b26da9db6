//! GTP-U, IP and ICMP as bytes of strangers: read or refused, and what is read lies within the bytes.
#![no_main]

use dray_upf::config::Filter;
use dray_wire::gtpu::{self, Header};
use dray_wire::icmp::{self, Discovery, Problem};
use dray_wire::ip::{self, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::parse(bytes, bytes.len()) {
        assert!(header.len + header.payload_len <= bytes.len());
        let _ = gtpu::parse_error_indication(&bytes[header.len..header.len + header.payload_len]);
    }
    if let Ok(packet) = Packet::parse(bytes, bytes.len()) {
        assert!(packet.header_len <= packet.len && packet.len <= bytes.len());
        let _ = Discovery::parse(&packet, bytes);
        if let Some(reply) = icmp::echo_reply(&packet, bytes) {
            assert!(Packet::parse(&reply, reply.len()).is_ok());
        }
        for from in [[10, 0, 0, 1].into(), [1; 16].into()] {
            if let Some(error) = icmp::error(from, &packet, bytes, Problem::TooBig(1280)) {
                let error = Packet::parse(&error, error.len()).expect("what we make is right");
                assert_eq!((error.dst, ip::address(error.src)), (packet.src, from));
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(filter) = text.parse::<Filter>()
    {
        assert_eq!(filter.to_string().parse(), Ok(filter));
    }
});

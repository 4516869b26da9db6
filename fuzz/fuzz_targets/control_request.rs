//! Bytes from the control socket: a complete request, or a reply that names the error.
#![no_main]

use std::io::{self, Cursor, Read, Write};

use dray_daemon::{BODY_MAX, HEAD_MAX, RequestError, read_request};
use dray_switch::PortConfig;
use dray_switch::config::from_json;
use libfuzzer_sys::fuzz_target;

struct Peer<'a>(Cursor<&'a [u8]>);

impl Read for Peer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Reads in pieces, whose lengths come from the bytes themselves.
        let next = self.0.get_ref().get(self.0.position() as usize).copied().unwrap_or(0);
        let most = into.len().min(1 + usize::from(next));
        self.0.read(&mut into[..most])
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    match read_request(&mut Peer(Cursor::new(bytes)), BODY_MAX) {
        Ok(request) => {
            assert!(request.path.starts_with('/') && request.path.len() < HEAD_MAX);
            assert!(request.body.len() <= BODY_MAX);
        }
        Err(RequestError::Refused(refusal)) => {
            assert!((400..500).contains(&refusal.status));
            assert!(!refusal.what.contains('\n'));
        }
        Err(RequestError::Gone(_)) => {}
    }
    if let Ok(port) = from_json::<PortConfig>(bytes) {
        let again = serde_json::to_vec(&port).expect("a port has a form in JSON");
        assert_eq!(from_json(&again), Ok(port));
    }
});

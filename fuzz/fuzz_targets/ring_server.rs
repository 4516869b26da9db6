//! A memif server whose client writes anything into the ring at any time.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
mod bytes;
#[path = "../../dataplane/ring/tests/ring/memif.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod memif;
#[path = "../../dataplane/ring/tests/ring/server.rs"]
mod server;

fuzz_target!(|bytes: &[u8]| server::run(bytes));

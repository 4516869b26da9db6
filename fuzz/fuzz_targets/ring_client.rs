//! A memif client whose server writes anything into the ring at any time.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
mod bytes;
#[path = "../../dataplane/ring/tests/ring/client.rs"]
mod client;
#[path = "../../dataplane/ring/tests/ring/memif.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod memif;

fuzz_target!(|bytes: &[u8]| client::run(bytes));

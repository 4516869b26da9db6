//! A device whose driver writes anything into the ring at any time.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
mod bytes;
#[path = "../../dataplane/ring/tests/ring/device.rs"]
mod device;
#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../dataplane/ring/tests/ring/memory.rs"]
mod memory;

fuzz_target!(|bytes: &[u8]| device::run(bytes));

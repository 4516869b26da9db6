//! Both sides of a ring against an oracle: every buffer comes out once, in order, and no side
//! misses a wakeup.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
mod bytes;
#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../dataplane/ring/tests/ring/memory.rs"]
mod memory;
#[path = "../../dataplane/ring/tests/ring/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::run(bytes));

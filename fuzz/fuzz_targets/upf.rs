//! Untrusted frames at both interfaces of a user plane function, with valid checksums if the input
//! says so, alone, in batches, in outer fragments, and in memory that changes: each is counted
//! once, and every packet that leaves is a user's own or the function's own.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/upf/tests/any_bytes/model/mod.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| {
    model::run(bytes);
});

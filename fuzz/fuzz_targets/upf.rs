//! Frames of strangers at both interfaces of a user plane function, with valid checksums where the input
//! says so, alone, in batches, in outer fragments, and in memory that changes: each is counted once,
//! and what leaves is a user's own packet, or ours.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/upf/tests/any_bytes/model.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| {
    model::run(bytes);
});

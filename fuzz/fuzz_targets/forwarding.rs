//! The switch's data path against a model: the fuzzer chooses ports, frames, and what senders
//! change while the switch runs. Frames with offloads: no checksum leaves worse than it came.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/switch/tests/bench/mod.rs"]
mod bench;
#[path = "../../dataplane/switch/tests/forwarding/checksums.rs"]
mod checksums;
#[path = "../../dataplane/switch/tests/inline/mod.rs"]
mod inline;
#[path = "../../dataplane/switch/tests/forwarding/model.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| match bytes.split_first() {
    Some((0xff, rest)) => checksums::run(rest),
    _ => model::run(bytes),
});

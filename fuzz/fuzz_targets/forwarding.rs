//! The switch's data path against a model: the fuzzer chooses ports, frames, and what senders
//! change while the switch runs.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/switch/tests/inline/mod.rs"]
mod inline;
#[path = "../../dataplane/switch/tests/forwarding/model.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::run(bytes));

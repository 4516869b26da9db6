//! Parts of the targets that are the peer of a port.

use std::time::Duration;

use dray_port::{Frame, Port, Scratch};

use crate::bytes::Bytes;

/// Time limit for an input; far longer than any input takes on a slow machine.
pub const HANG: Duration = Duration::from_secs(20);

/// Moves frames as a worker does; a lent one has at least `least` bytes.
pub fn exchange(port: &mut Port, scratch: &mut Scratch, frames: usize, least: usize) {
    let mut take = |lent: &[Frame<'_>]| {
        for frame in lent {
            // One with an offload may be longer than others.
            let mut long = vec![0; if frame.len() > scratch.len() { frame.len() } else { 0 }];
            let len = match long.len() {
                0 => frame.bytes(scratch).len(),
                _ => frame.copy_from(0, &mut long),
            };
            assert!(len >= least);
        }
        lent.len() - lent.len() / 4
    };
    for rx in &mut port.rx {
        rx.receive(&mut take).expect("the port does not fail");
        rx.arm(true);
        rx.arm(false);
    }
    let long = [0x5a; 9018];
    for tx in &mut port.tx {
        let frames: Vec<_> = (0..frames).map(|n| long[..60 + n * 37 % 8900].into()).collect();
        tx.transmit(&frames).expect("the port does not fail");
        tx.pending();
    }
}

/// Returns the right number, one close to it, or any number.
pub fn number(bytes: &mut Bytes<'_>, right: u64) -> u64 {
    match bytes.byte() % 8 {
        0 => right.wrapping_add(1),
        1 => right.wrapping_sub(1),
        2 => 0,
        3 => u64::MAX - u64::from(bytes.byte()),
        4 => bytes.u64(),
        5 => right ^ 1 << (bytes.byte() % 64),
        _ => right,
    }
}

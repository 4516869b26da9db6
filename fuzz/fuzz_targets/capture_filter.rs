//! A program of a filter, from a client, and a frame, from a peer: the program is refused, or it
//! ends and reads nothing beyond the frame.
#![no_main]

use dray_capture::filter::{Filter, Instruction};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<(u16, u8, u8, u32)>, Vec<u8>)| {
    let (program, frame) = input;
    let mut program: Vec<_> =
        program.into_iter().map(|(code, yes, no, k)| Instruction(code, yes, no, k)).collect();
    for _ in 0..2 {
        if let Ok(filter) = Filter::new(&program) {
            let kept = filter.keeps(&frame, frame.len());
            assert_eq!(kept, filter.keeps(&frame, frame.len()));
        }
        // Random programs rarely consist of known instructions, and end with a return.
        const CODES: [u16; 40] = [
            0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02,
            0x03, 0x04, 0x0c, 0x14, 0x24, 0x34, 0x3c, 0x44, 0x54, 0x64, 0x6c, 0x74, 0x94, 0x9c,
            0xa4, 0x84, 0x05, 0x15, 0x1d, 0x25, 0x35, 0x45, 0x06, 0x16, 0x07, 0x87,
        ];
        for Instruction(code, yes, no, k) in &mut program {
            *code = CODES[usize::from(*code) % CODES.len()];
            (*yes, *no) = (*yes % 8, *no % 8);
            if !matches!(*code, 0x00 | 0x01) {
                *k %= 128;
            }
        }
        program.extend([Instruction(0x16, 0, 0, 0); 16]);
    }
});

//! Invalid frames, and buffers too small for any frame.

use crate::liar::Expect::{self, Any, Harmless, Malformed, NoRoom};
use crate::liar::memory::{BUFFERS, GUEST, LEN, parts};
use crate::liar::message::{EVENT_INDEX, MERGEABLE, PLAIN};
use crate::liar::ring::{FRAME, HEADER, NEXT, WRITE, buffer};
use crate::liar::{Liar, Lie, lie, wait_until};

/// Starts, and transmits a frame of `len` bytes, header included.
fn transmit(liar: &mut Liar, len: u32) {
    liar.start(PLAIN);
    liar.tx().offer((buffer(), len, 0, 0));
    liar.kick();
}

/// Posts as many receive buffers like `descriptor` as the ring holds.
fn receive(liar: &mut Liar, features: u64, descriptor: (u64, u32, u16, u16)) {
    liar.start(features);
    let mut rx = liar.rx();
    (0..256).for_each(|_| rx.offer(descriptor));
    liar.kick();
}

pub(super) const LIES: &[Lie] = &[
    lie("a frame of no bytes and no header", Malformed, |liar| transmit(liar, 0)),
    lie("a frame shorter than its header", Malformed, |liar| transmit(liar, HEADER - 1)),
    lie("a header without a frame", Malformed, |liar| transmit(liar, HEADER)),
    lie("a frame shorter than an Ethernet header", Malformed, |liar| transmit(liar, HEADER + 13)),
    lie("a frame of 64 KiB", Malformed, |liar| transmit(liar, HEADER + 0x1_0000)),
    lie("a frame of 64 KiB in page-sized buffers", Malformed, |liar| {
        liar.start(PLAIN);
        let mut tx = liar.tx();
        (0..16).for_each(|index| tx.descriptor(index, (buffer(), 4096, NEXT, index + 1)));
        tx.descriptor(16, (buffer(), HEADER, 0, 0));
        tx.post(0);
        liar.kick();
    }),
    lie("a frame of 256 MiB that repeats the same 1 MiB", Malformed, |liar| {
        liar.start(PLAIN);
        let mut tx = liar.tx();
        (0..255).for_each(|index| tx.descriptor(index, (GUEST, LEN as u32, NEXT, index + 1)));
        tx.descriptor(255, (GUEST, LEN as u32, 0, 0));
        tx.post(0);
        liar.kick();
    }),
    lie("a virtio-net header with every flag set", Harmless, |liar| {
        liar.memory.write(BUFFERS, &[0xff; 12]);
        transmit(liar, FRAME);
    }),
    lie("frames of no bytes, reposted immediately", Malformed, |liar| {
        liar.start(PLAIN);
        let (mut tx, kick) = (liar.tx(), liar.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| tx.descriptor(index, (buffer(), 0, 0, 0)));
        let mut posted = 0u16;
        liar.meanwhile(move || {
            while posted.wrapping_sub(tx.used()) < 256 {
                tx.post(posted % 256);
                posted = posted.wrapping_add(1);
            }
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    lie("receive buffers of 4 bytes", NoRoom, |liar| {
        receive(liar, PLAIN, (buffer(), 4, WRITE, 0));
    }),
    lie("receive buffers of no bytes", NoRoom, |liar| {
        receive(liar, PLAIN | MERGEABLE, (buffer(), 0, WRITE, 0));
    }),
    lie("receive buffers of 11 bytes that split the header", NoRoom, |liar| {
        receive(liar, PLAIN | MERGEABLE, (buffer(), 11, WRITE, 0));
    }),
    lie("a receive chain of 256 MiB", Harmless, |liar| {
        liar.start(PLAIN);
        let mut rx = liar.rx();
        let len = (LEN - BUFFERS) as u32;
        (0..255).for_each(|index| rx.descriptor(index, (buffer(), len, WRITE | NEXT, index + 1)));
        rx.descriptor(255, (buffer(), len, WRITE, 0));
        rx.post(0);
        assert!(wait_until(|| rx.used() == 1 || liar.is_hung_up()));
    }),
    lie("receive buffers that overlap their own ring", Any, |liar| {
        receive(liar, PLAIN, (GUEST + parts(0)[1], 2048, WRITE, 0));
    }),
    lie("receive buffers that overlap the other ring", Any, |liar| {
        receive(liar, PLAIN, (GUEST + parts(1)[1], 2048, WRITE, 0));
    }),
    lie("calls suppressed at random by used_event", Expect::Harmless, |liar| {
        liar.start(PLAIN | EVENT_INDEX);
        let (mut tx, mut wish) = (liar.tx(), 1u16);
        for _ in 0..200 {
            wish = wish.wrapping_mul(25_173).wrapping_add(13_849);
            tx.set_used_event(wish);
            tx.offer((buffer(), FRAME, 0, 0));
        }
        liar.kick();
    }),
];

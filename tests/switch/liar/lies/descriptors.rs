//! Single descriptors.

use crate::liar::Expect::{Harmless, Refused};
use crate::liar::memory::{GUEST, LEN};
use crate::liar::message::{INDIRECT as INDIRECT_FEATURE, PLAIN, SET_VRING_KICK};
use crate::liar::ring::{Descriptor, FRAME, WRITE, buffer};
use crate::liar::{Liar, Lie, lie};
use std::os::fd::AsFd;

const OUTSIDE: super::super::Expect = Refused("is outside the shared memory");

/// Starts, and transmits `descriptor`.
fn transmit(liar: &mut Liar, descriptor: Descriptor) {
    liar.start(PLAIN);
    liar.tx().offer(descriptor);
    liar.kick();
}

/// Starts, and posts `descriptor` to receive.
fn receive(liar: &mut Liar, descriptor: Descriptor) {
    liar.start(PLAIN);
    liar.rx().offer(descriptor);
    liar.kick();
}

pub(super) const LIES: &[Lie] = &[
    lie("a frame past the end of memory", OUTSIDE, |liar| {
        transmit(liar, (GUEST + LEN, FRAME, 0, 0));
    }),
    lie("a frame before the start of memory", OUTSIDE, |liar| {
        transmit(liar, (GUEST - 1, FRAME, 0, 0));
    }),
    lie("a frame across the end of memory", OUTSIDE, |liar| {
        transmit(liar, (GUEST + LEN - 1, FRAME, 0, 0));
    }),
    lie("a frame at address zero", OUTSIDE, |liar| transmit(liar, (0, FRAME, 0, 0))),
    lie("a frame across the last address", OUTSIDE, |liar| {
        transmit(liar, (u64::MAX - 10, FRAME, 0, 0));
    }),
    lie("a frame of 4 GiB", OUTSIDE, |liar| transmit(liar, (buffer(), u32::MAX, 0, 0))),
    lie("a process address instead of a guest address", OUTSIDE, |liar| {
        transmit(liar, (crate::liar::memory::USER, FRAME, 0, 0));
    }),
    lie("a receive buffer outside memory", OUTSIDE, |liar| {
        receive(liar, (GUEST + LEN - 100, 2048, WRITE, 0));
    }),
    lie("a transmit buffer marked device-writable", Refused("not device-readable"), |liar| {
        transmit(liar, (buffer(), FRAME, WRITE, 0));
    }),
    lie("a receive buffer marked device-readable", Refused("not device-writable"), |liar| {
        receive(liar, (buffer(), 2048, 0, 0));
    }),
    lie(
        "a descriptor index past the table",
        Refused("descriptor 256 is outside the table of 256"),
        |liar| {
            liar.start(PLAIN);
            liar.tx().post(256);
            liar.kick();
        },
    ),
    lie(
        "an available index that jumps ahead",
        Refused("ring index jumped from 0 to 257"),
        |liar| {
            liar.start(PLAIN);
            liar.tx().set_available(257);
            liar.kick();
        },
    ),
    lie(
        "an available index that goes backwards",
        Refused("ring index jumped from 8 to 7"),
        |liar| {
            liar.start(PLAIN);
            let mut tx = liar.tx();
            (0..8).for_each(|_| tx.offer((buffer(), FRAME, 0, 0)));
            liar.kick();
            assert!(crate::liar::wait_until(|| tx.used() == 8 || liar.is_hung_up()));
            tx.set_available(7);
            liar.kick();
        },
    ),
    lie(
        "a receive available index that jumps ahead",
        Refused("ring index jumped from 0 to 32768"),
        |liar| {
            liar.start(PLAIN);
            liar.rx().set_available(0x8000);
        },
    ),
    lie("an overwritten used index", Harmless, |liar| {
        liar.start(PLAIN);
        let mut tx = liar.tx();
        tx.set_used(0x1234);
        tx.offer((buffer(), FRAME, 0, 0));
        liar.kick();
    }),
    lie(
        "a used index overwritten before the ring starts",
        Refused("ring index jumped from 32768 to 0"),
        |liar| {
            liar.start(PLAIN);
            liar.tx().set_used(0x8000);
            liar.fd(SET_VRING_KICK, 1, liar.kicks[1].as_fd());
            liar.sync();
            liar.kick();
        },
    ),
    lie("unknown descriptor flags", Harmless, |liar| {
        liar.start(PLAIN | INDIRECT_FEATURE);
        liar.tx().offer((buffer(), FRAME, 0xfff8, 0));
        liar.kick();
    }),
];

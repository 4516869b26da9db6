//! Single descriptors.

use crate::liar::Expect::{Harmless, Refused};
use crate::liar::memory::{GUEST, LEN};
use crate::liar::message::{INDIRECT as INDIRECT_FEATURE, PLAIN, SET_VRING_KICK};
use crate::liar::ring::{Descriptor, FRAME, WRITE, buffer};
use crate::liar::{Liar, Lie};
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
    Lie {
        name: "a frame past the end of memory",
        tell: |liar| transmit(liar, (GUEST + LEN, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame before the start of memory",
        tell: |liar| transmit(liar, (GUEST - 1, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame across the end of memory",
        tell: |liar| transmit(liar, (GUEST + LEN - 1, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame at address zero",
        tell: |liar| transmit(liar, (0, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame across the last address",
        tell: |liar| transmit(liar, (u64::MAX - 10, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame of 4 GiB",
        tell: |liar| transmit(liar, (buffer(), u32::MAX, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a process address instead of a guest address",
        tell: |liar| transmit(liar, (crate::liar::memory::USER, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a receive buffer outside memory",
        tell: |liar| receive(liar, (GUEST + LEN - 100, 2048, WRITE, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a transmit buffer marked device-writable",
        tell: |liar| transmit(liar, (buffer(), FRAME, WRITE, 0)),
        expect: Refused("not device-readable"),
    },
    Lie {
        name: "a receive buffer marked device-readable",
        tell: |liar| receive(liar, (buffer(), 2048, 0, 0)),
        expect: Refused("not device-writable"),
    },
    Lie {
        name: "a descriptor index past the table",
        tell: |liar| {
            liar.start(PLAIN);
            liar.tx().post(256);
            liar.kick();
        },
        expect: Refused("descriptor 256 is outside the table of 256"),
    },
    Lie {
        name: "an available index that jumps ahead",
        tell: |liar| {
            liar.start(PLAIN);
            liar.tx().set_available(257);
            liar.kick();
        },
        expect: Refused("ring index jumped from 0 to 257"),
    },
    Lie {
        name: "an available index that goes backwards",
        tell: |liar| {
            liar.start(PLAIN);
            let mut tx = liar.tx();
            (0..8).for_each(|_| tx.offer((buffer(), FRAME, 0, 0)));
            liar.kick();
            assert!(crate::liar::wait_until(|| tx.used() == 8 || liar.is_hung_up()));
            tx.set_available(7);
            liar.kick();
        },
        expect: Refused("ring index jumped from 8 to 7"),
    },
    Lie {
        name: "a receive available index that jumps ahead",
        tell: |liar| {
            liar.start(PLAIN);
            liar.rx().set_available(0x8000);
        },
        expect: Refused("ring index jumped from 0 to 32768"),
    },
    Lie {
        name: "an overwritten used index",
        tell: |liar| {
            liar.start(PLAIN);
            let mut tx = liar.tx();
            tx.set_used(0x1234);
            tx.offer((buffer(), FRAME, 0, 0));
            liar.kick();
        },
        expect: Harmless,
    },
    Lie {
        name: "a used index overwritten before the ring starts",
        tell: |liar| {
            liar.start(PLAIN);
            liar.tx().set_used(0x8000);
            liar.fd(SET_VRING_KICK, 1, liar.kicks[1].as_fd());
            liar.sync();
            liar.kick();
        },
        expect: Refused("ring index jumped from 32768 to 0"),
    },
    Lie {
        name: "unknown descriptor flags",
        tell: |liar| {
            liar.start(PLAIN | INDIRECT_FEATURE);
            liar.tx().offer((buffer(), FRAME, 0xfff8, 0));
            liar.kick();
        },
        expect: Harmless,
    },
];

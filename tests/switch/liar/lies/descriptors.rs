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
        name: "a frame behind the end of the memory",
        tell: |liar| transmit(liar, (GUEST + LEN, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame before the memory",
        tell: |liar| transmit(liar, (GUEST - 1, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame across the end of the memory",
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
        name: "an address of its own process instead of the guest's",
        tell: |liar| transmit(liar, (crate::liar::memory::USER, FRAME, 0, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a buffer to receive in, outside the memory",
        tell: |liar| receive(liar, (GUEST + LEN - 100, 2048, WRITE, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "a frame to transmit, marked to be written",
        tell: |liar| transmit(liar, (buffer(), FRAME, WRITE, 0)),
        expect: Refused("not device-readable"),
    },
    Lie {
        name: "a buffer to receive in, marked to be read",
        tell: |liar| receive(liar, (buffer(), 2048, 0, 0)),
        expect: Refused("not device-writable"),
    },
    Lie {
        name: "a descriptor that there is none of",
        tell: |liar| {
            liar.start(PLAIN);
            liar.tx().post(256);
            liar.kick();
        },
        expect: Refused("descriptor 256 is outside the table of 256"),
    },
    Lie {
        name: "an available index far ahead",
        tell: |liar| {
            liar.start(PLAIN);
            liar.tx().set_available(257);
            liar.kick();
        },
        expect: Refused("ring index jumped from 0 to 257"),
    },
    Lie {
        name: "an available index that goes back",
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
        name: "an available index far ahead, to receive",
        tell: |liar| {
            liar.start(PLAIN);
            liar.rx().set_available(0x8000);
        },
        expect: Refused("ring index jumped from 0 to 32768"),
    },
    Lie {
        name: "the device's used index, overwritten",
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
        name: "the device's used index, overwritten before it starts",
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
        name: "unknown flags",
        tell: |liar| {
            liar.start(PLAIN | INDIRECT_FEATURE);
            liar.tx().offer((buffer(), FRAME, 0xfff8, 0));
            liar.kick();
        },
        expect: Harmless,
    },
];

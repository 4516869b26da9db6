//! The order of messages, and what they negotiate.

use std::os::fd::AsFd;

use crate::liar::Expect::{self, Harmless, Left, Refused};
use crate::liar::memory::{USER, parts};
use crate::liar::message::{
    GET_FEATURES, GET_PROTOCOL_FEATURES, GET_VRING_BASE, PLAIN, RESET_OWNER, SET_FEATURES,
    SET_OWNER, SET_PROTOCOL_FEATURES, SET_VRING_BASE, SET_VRING_CALL, SET_VRING_ENABLE,
    SET_VRING_KICK, SET_VRING_NUM, words,
};
use crate::liar::ring::{FRAME, WRITE, buffer};
use crate::liar::{Liar, Lie};

const TWO: Expect = Refused("no virtqueue 2: the device has 2");

/// An honest handshake, step by step.
const STEPS: &[fn(&mut Liar)] = &[
    |liar| _ = liar.ask(GET_FEATURES),
    |liar| liar.send(SET_OWNER, &[], &[]),
    |liar| _ = liar.ask(GET_PROTOCOL_FEATURES),
    |liar| liar.send(SET_PROTOCOL_FEATURES, &0u64.to_ne_bytes(), &[]),
    |liar| liar.send(SET_FEATURES, &PLAIN.to_ne_bytes(), &[]),
    |liar| liar.share_all(),
    |liar| liar.vring(SET_VRING_NUM, 0, 256),
    |liar| liar.vring(SET_VRING_BASE, 0, 0),
    |liar| liar.addresses(0, parts(0).map(|part| USER + part)),
    |liar| liar.fd(SET_VRING_CALL, 0, liar.calls[0].as_fd()),
    |liar| liar.fd(SET_VRING_KICK, 0, liar.kicks[0].as_fd()),
    |liar| liar.set_up(1),
    |liar| liar.enable(0),
    |liar| liar.enable(1),
    |liar| {
        liar.rx().offer((buffer(), 2048, WRITE, 0));
        liar.tx().offer((buffer(), FRAME, 0, 0));
        liar.kick();
    },
    |liar| liar.vring(GET_VRING_BASE, 1, 0),
];

pub(super) const LIES: &[Lie] = &[
    Lie {
        name: "a disconnect after each handshake message",
        tell: |liar| {
            for steps in 0..=STEPS.len() {
                STEPS[..steps].iter().for_each(|step| step(liar));
                liar.reconnect();
            }
            liar.hang_up();
        },
        expect: Left,
    },
    Lie {
        name: "the handshake in reverse order",
        tell: |liar| {
            // The order does not matter if every step is there: QEMU enables rings first.
            STEPS.iter().rev().for_each(|step| step(liar));
        },
        expect: Harmless,
    },
    Lie {
        name: "features negotiated last",
        tell: |liar| {
            liar.ask(GET_FEATURES);
            (0..2).for_each(|index| liar.set_up(index));
            liar.share_all();
            liar.send(SET_FEATURES, &PLAIN.to_ne_bytes(), &[]);
            (0..2).for_each(|index| liar.enable(index));
            liar.sync();
        },
        expect: Harmless,
    },
    Lie {
        name: "a ring enabled before features",
        tell: |liar| liar.enable(1),
        // QEMU does this.
        expect: Harmless,
    },
    Lie {
        name: "a ring enabled with value 2",
        tell: |liar| {
            liar.negotiate(PLAIN);
            liar.vring(SET_VRING_ENABLE, 1, 2);
        },
        expect: Refused("expected 8 bytes, with the value 0 or 1"),
    },
    Lie {
        name: "features that the device did not offer",
        tell: |liar| liar.send(SET_FEATURES, &u64::MAX.to_ne_bytes(), &[]),
        expect: Refused("were not offered"),
    },
    Lie {
        name: "protocol features that the device did not offer",
        tell: |liar| liar.send(SET_PROTOCOL_FEATURES, &u64::MAX.to_ne_bytes(), &[]),
        expect: Refused("protocol features 0x"),
    },
    Lie {
        name: "a reply requested without negotiation",
        tell: |liar| {
            liar.ask(GET_FEATURES);
            liar.raw(&words(&[SET_OWNER, 1 | 8, 0]), &[]);
            liar.sync();
        },
        expect: Harmless,
    },
    Lie {
        name: "an owner that resets ownership and continues",
        tell: |liar| {
            liar.start(PLAIN);
            liar.send(RESET_OWNER, &[], &[]);
            liar.sync();
        },
        expect: Harmless,
    },
    Lie {
        name: "the size of an invalid virtqueue",
        tell: |liar| liar.vring(SET_VRING_NUM, 2, 256),
        expect: TWO,
    },
    Lie {
        name: "the address of an invalid virtqueue",
        tell: |liar| liar.addresses(2, [USER; 3]),
        expect: TWO,
    },
    Lie {
        name: "the base of an invalid virtqueue",
        tell: |liar| liar.vring(SET_VRING_BASE, 2, 0),
        expect: TWO,
    },
    Lie {
        name: "stopping an invalid virtqueue",
        tell: |liar| liar.vring(GET_VRING_BASE, u32::MAX, 0),
        expect: Refused("no virtqueue 4294967295: the device has 2"),
    },
    Lie {
        name: "enabling an invalid virtqueue",
        tell: |liar| {
            liar.negotiate(PLAIN);
            liar.enable(2);
        },
        expect: TWO,
    },
    Lie {
        name: "the kick of an invalid virtqueue",
        tell: |liar| liar.fd(SET_VRING_KICK, 0xff, liar.kicks[0].as_fd()),
        expect: Refused("no virtqueue 255: the device has 2"),
    },
    Lie {
        name: "the call of an invalid virtqueue",
        tell: |liar| liar.fd(SET_VRING_CALL, 2, liar.calls[0].as_fd()),
        expect: TWO,
    },
];

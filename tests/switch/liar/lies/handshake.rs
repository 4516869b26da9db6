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
use crate::liar::{Liar, Lie, lie};

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
    lie("a disconnect after each handshake message", Left, |liar| {
        for steps in 0..=STEPS.len() {
            STEPS[..steps].iter().for_each(|step| step(liar));
            liar.reconnect();
        }
        liar.hang_up();
    }),
    lie("the handshake in reverse order", Harmless, |liar| {
        // The order does not matter if every step is there: QEMU enables rings first.
        STEPS.iter().rev().for_each(|step| step(liar));
    }),
    lie("features negotiated last", Harmless, |liar| {
        liar.ask(GET_FEATURES);
        (0..2).for_each(|index| liar.set_up(index));
        liar.share_all();
        liar.send(SET_FEATURES, &PLAIN.to_ne_bytes(), &[]);
        (0..2).for_each(|index| liar.enable(index));
        liar.sync();
    }),
    // QEMU does this.
    lie("a ring enabled before features", Harmless, |liar| liar.enable(1)),
    lie(
        "a ring enabled with value 2",
        Refused("expected 8 bytes, with the value 0 or 1"),
        |liar| {
            liar.negotiate(PLAIN);
            liar.vring(SET_VRING_ENABLE, 1, 2);
        },
    ),
    lie("features that the device did not offer", Refused("were not offered"), |liar| {
        liar.send(SET_FEATURES, &u64::MAX.to_ne_bytes(), &[]);
    }),
    lie(
        "protocol features that the device did not offer",
        Refused("protocol features 0x"),
        |liar| liar.send(SET_PROTOCOL_FEATURES, &u64::MAX.to_ne_bytes(), &[]),
    ),
    lie("a reply requested without negotiation", Harmless, |liar| {
        liar.ask(GET_FEATURES);
        liar.raw(&words(&[SET_OWNER, 1 | 8, 0]), &[]);
        liar.sync();
    }),
    lie("an owner that resets ownership and continues", Harmless, |liar| {
        liar.start(PLAIN);
        liar.send(RESET_OWNER, &[], &[]);
        liar.sync();
    }),
    lie("the size of an invalid virtqueue", TWO, |liar| liar.vring(SET_VRING_NUM, 2, 256)),
    lie("the address of an invalid virtqueue", TWO, |liar| liar.addresses(2, [USER; 3])),
    lie("the base of an invalid virtqueue", TWO, |liar| liar.vring(SET_VRING_BASE, 2, 0)),
    lie(
        "stopping an invalid virtqueue",
        Refused("no virtqueue 4294967295: the device has 2"),
        |liar| liar.vring(GET_VRING_BASE, u32::MAX, 0),
    ),
    lie("enabling an invalid virtqueue", TWO, |liar| {
        liar.negotiate(PLAIN);
        liar.enable(2);
    }),
    lie(
        "the kick of an invalid virtqueue",
        Refused("no virtqueue 255: the device has 2"),
        |liar| liar.fd(SET_VRING_KICK, 0xff, liar.kicks[0].as_fd()),
    ),
    lie("the call of an invalid virtqueue", TWO, |liar| {
        liar.fd(SET_VRING_CALL, 2, liar.calls[0].as_fd());
    }),
];

//! The order of messages, and what they negotiate.

use std::os::fd::AsFd;

use crate::hostile::Expect::{self, Harmless, Left, Refused};
use crate::hostile::memory::{USER, parts};
use crate::hostile::message::{
    GET_FEATURES, GET_PROTOCOL_FEATURES, GET_VRING_BASE, PLAIN, RESET_OWNER, SET_FEATURES,
    SET_OWNER, SET_PROTOCOL_FEATURES, SET_VRING_BASE, SET_VRING_CALL, SET_VRING_ENABLE,
    SET_VRING_KICK, SET_VRING_NUM, words,
};
use crate::hostile::ring::{FRAME, WRITE, buffer};
use crate::hostile::{HostileDriver, Violation, violation};

const TWO: Expect = Refused("no virtqueue 2: the device has 2");

/// An conforming handshake, step by step.
const STEPS: &[fn(&mut HostileDriver)] = &[
    |driver| _ = driver.ask(GET_FEATURES),
    |driver| driver.send(SET_OWNER, &[], &[]),
    |driver| _ = driver.ask(GET_PROTOCOL_FEATURES),
    |driver| driver.send(SET_PROTOCOL_FEATURES, &0u64.to_ne_bytes(), &[]),
    |driver| driver.send(SET_FEATURES, &PLAIN.to_ne_bytes(), &[]),
    |driver| driver.share_all(),
    |driver| driver.vring(SET_VRING_NUM, 0, 256),
    |driver| driver.vring(SET_VRING_BASE, 0, 0),
    |driver| driver.addresses(0, parts(0).map(|part| USER + part)),
    |driver| driver.fd(SET_VRING_CALL, 0, driver.calls[0].as_fd()),
    |driver| driver.fd(SET_VRING_KICK, 0, driver.kicks[0].as_fd()),
    |driver| driver.set_up(1),
    |driver| driver.enable(0),
    |driver| driver.enable(1),
    |driver| {
        driver.rx().offer((buffer(), 2048, WRITE, 0));
        driver.tx().offer((buffer(), FRAME, 0, 0));
        driver.kick();
    },
    |driver| driver.vring(GET_VRING_BASE, 1, 0),
];

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("a disconnect after each handshake message", Left, |driver| {
        for steps in 0..=STEPS.len() {
            STEPS[..steps].iter().for_each(|step| step(driver));
            driver.reconnect();
        }
        driver.hang_up();
    }),
    violation("the handshake in reverse order", Harmless, |driver| {
        // The order does not matter if every step is there: QEMU enables rings first.
        STEPS.iter().rev().for_each(|step| step(driver));
    }),
    violation("features negotiated last", Harmless, |driver| {
        driver.ask(GET_FEATURES);
        (0..2).for_each(|index| driver.set_up(index));
        driver.share_all();
        driver.send(SET_FEATURES, &PLAIN.to_ne_bytes(), &[]);
        (0..2).for_each(|index| driver.enable(index));
        driver.sync();
    }),
    // QEMU does this.
    violation("a ring enabled before features", Harmless, |driver| driver.enable(1)),
    violation(
        "a ring enabled with value 2",
        Refused("expected 8 bytes, with the value 0 or 1"),
        |driver| {
            driver.negotiate(PLAIN);
            driver.vring(SET_VRING_ENABLE, 1, 2);
        },
    ),
    violation("features that the device did not offer", Refused("were not offered"), |driver| {
        driver.send(SET_FEATURES, &u64::MAX.to_ne_bytes(), &[]);
    }),
    violation(
        "protocol features that the device did not offer",
        Refused("protocol features 0x"),
        |driver| driver.send(SET_PROTOCOL_FEATURES, &u64::MAX.to_ne_bytes(), &[]),
    ),
    violation("a reply requested without negotiation", Harmless, |driver| {
        driver.ask(GET_FEATURES);
        driver.raw(&words(&[SET_OWNER, 1 | 8, 0]), &[]);
        driver.sync();
    }),
    violation("an owner that resets ownership and continues", Harmless, |driver| {
        driver.start(PLAIN);
        driver.send(RESET_OWNER, &[], &[]);
        driver.sync();
    }),
    violation("the size of an invalid virtqueue", TWO, |driver| {
        driver.vring(SET_VRING_NUM, 2, 256);
    }),
    violation("the address of an invalid virtqueue", TWO, |driver| driver.addresses(2, [USER; 3])),
    violation("the base of an invalid virtqueue", TWO, |driver| driver.vring(SET_VRING_BASE, 2, 0)),
    violation(
        "stopping an invalid virtqueue",
        Refused("no virtqueue 4294967295: the device has 2"),
        |driver| driver.vring(GET_VRING_BASE, u32::MAX, 0),
    ),
    violation("enabling an invalid virtqueue", TWO, |driver| {
        driver.negotiate(PLAIN);
        driver.enable(2);
    }),
    violation(
        "the kick of an invalid virtqueue",
        Refused("no virtqueue 255: the device has 2"),
        |driver| driver.fd(SET_VRING_KICK, 0xff, driver.kicks[0].as_fd()),
    ),
    violation("the call of an invalid virtqueue", TWO, |driver| {
        driver.fd(SET_VRING_CALL, 2, driver.calls[0].as_fd());
    }),
];

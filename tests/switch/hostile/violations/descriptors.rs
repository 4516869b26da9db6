//! Single descriptors.

use crate::hostile::Expect::{Harmless, Refused};
use crate::hostile::memory::{GUEST, LEN};
use crate::hostile::message::{INDIRECT as INDIRECT_FEATURE, PLAIN, SET_VRING_KICK};
use crate::hostile::ring::{Descriptor, FRAME, WRITE, buffer};
use crate::hostile::{HostileDriver, Violation, violation};
use std::os::fd::AsFd;

const OUTSIDE: super::super::Expect = Refused("is outside the shared memory");

/// Starts, and transmits `descriptor`.
fn transmit(driver: &mut HostileDriver, descriptor: Descriptor) {
    driver.start(PLAIN);
    driver.tx().offer(descriptor);
    driver.kick();
}

/// Starts, and posts `descriptor` to receive.
fn receive(driver: &mut HostileDriver, descriptor: Descriptor) {
    driver.start(PLAIN);
    driver.rx().offer(descriptor);
    driver.kick();
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("a frame past the end of memory", OUTSIDE, |driver| {
        transmit(driver, (GUEST + LEN, FRAME, 0, 0));
    }),
    violation("a frame before the start of memory", OUTSIDE, |driver| {
        transmit(driver, (GUEST - 1, FRAME, 0, 0));
    }),
    violation("a frame across the end of memory", OUTSIDE, |driver| {
        transmit(driver, (GUEST + LEN - 1, FRAME, 0, 0));
    }),
    violation("a frame at address zero", OUTSIDE, |driver| transmit(driver, (0, FRAME, 0, 0))),
    violation("a frame across the last address", OUTSIDE, |driver| {
        transmit(driver, (u64::MAX - 10, FRAME, 0, 0));
    }),
    violation("a frame of 4 GiB", OUTSIDE, |driver| transmit(driver, (buffer(), u32::MAX, 0, 0))),
    violation("a process address instead of a guest address", OUTSIDE, |driver| {
        transmit(driver, (crate::hostile::memory::USER, FRAME, 0, 0));
    }),
    violation("a receive buffer outside memory", OUTSIDE, |driver| {
        receive(driver, (GUEST + LEN - 100, 2048, WRITE, 0));
    }),
    violation(
        "a transmit buffer marked device-writable",
        Refused("not device-readable"),
        |driver| {
            transmit(driver, (buffer(), FRAME, WRITE, 0));
        },
    ),
    violation(
        "a receive buffer marked device-readable",
        Refused("not device-writable"),
        |driver| {
            receive(driver, (buffer(), 2048, 0, 0));
        },
    ),
    violation(
        "a descriptor index past the table",
        Refused("descriptor 256 is outside the table of 256"),
        |driver| {
            driver.start(PLAIN);
            driver.tx().post(256);
            driver.kick();
        },
    ),
    violation(
        "an available index that jumps ahead",
        Refused("ring index jumped from 0 to 257"),
        |driver| {
            driver.start(PLAIN);
            driver.tx().set_available(257);
            driver.kick();
        },
    ),
    violation(
        "an available index that goes backwards",
        Refused("ring index jumped from 8 to 7"),
        |driver| {
            driver.start(PLAIN);
            let mut tx = driver.tx();
            (0..8).for_each(|_| tx.offer((buffer(), FRAME, 0, 0)));
            driver.kick();
            assert!(crate::hostile::wait_until(|| tx.used() == 8 || driver.is_hung_up()));
            tx.set_available(7);
            driver.kick();
        },
    ),
    violation(
        "a receive available index that jumps ahead",
        Refused("ring index jumped from 0 to 32768"),
        |driver| {
            driver.start(PLAIN);
            driver.rx().set_available(0x8000);
        },
    ),
    violation("an overwritten used index", Harmless, |driver| {
        driver.start(PLAIN);
        let mut tx = driver.tx();
        tx.set_used(0x1234);
        tx.offer((buffer(), FRAME, 0, 0));
        driver.kick();
    }),
    violation(
        "a used index overwritten before the ring starts",
        Refused("ring index jumped from 32768 to 0"),
        |driver| {
            driver.start(PLAIN);
            driver.tx().set_used(0x8000);
            driver.fd(SET_VRING_KICK, 1, driver.kicks[1].as_fd());
            driver.sync();
            driver.kick();
        },
    ),
    violation("unknown descriptor flags", Harmless, |driver| {
        driver.start(PLAIN | INDIRECT_FEATURE);
        driver.tx().offer((buffer(), FRAME, 0xfff8, 0));
        driver.kick();
    }),
];

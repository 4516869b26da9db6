//! Addresses and parameters of rings, before they run and while they run.

use std::os::fd::AsFd;

use crate::hostile::Expect::{self, Any, Harmless, Refused};
use crate::hostile::memory::{LEN, USER, parts};
use crate::hostile::message::{
    GET_VRING_BASE, PLAIN, Region, SET_FEATURES, SET_VRING_BASE, SET_VRING_ENABLE, SET_VRING_KICK,
    SET_VRING_NUM,
};
use crate::hostile::ring::{FRAME, WRITE, buffer};
use crate::hostile::{HostileDriver, Violation, violation};

const SIZE: Expect = Refused("a power of two from 2 to 32768");
const OUTSIDE: Expect = Refused("is outside the shared memory");

/// Starts virtqueue 1 with these addresses.
fn addresses(driver: &mut HostileDriver, addresses: [u64; 3]) {
    driver.negotiate(PLAIN);
    driver.share_all();
    driver.set_up(1);
    driver.addresses(1, addresses);
    driver.enable(1);
}

fn right() -> [u64; 3] {
    parts(1).map(|part| USER + part)
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("a ring of no entries", SIZE, |driver| driver.vring(SET_VRING_NUM, 0, 0)),
    violation("a ring of 3 entries", SIZE, |driver| driver.vring(SET_VRING_NUM, 0, 3)),
    violation("a ring of 65536 entries", SIZE, |driver| driver.vring(SET_VRING_NUM, 0, 65_536)),
    violation("a ring of 2^32 - 1 entries", SIZE, |driver| {
        driver.vring(SET_VRING_NUM, 0, u32::MAX);
    }),
    violation(
        "a ring size that changes while the ring runs",
        Refused("the size of virtqueue 1 changed while it runs"),
        |driver| {
            driver.start(PLAIN);
            driver.vring(SET_VRING_NUM, 1, 1024);
        },
    ),
    violation(
        "a ring address that changes while the ring runs",
        Refused("the address of virtqueue 1 changed while it runs"),
        |driver| {
            driver.start(PLAIN);
            driver.addresses(1, right().map(|address| address + 4096));
        },
    ),
    violation(
        "a ring base that changes while the ring runs",
        Refused("the base of virtqueue 1 changed while it runs"),
        |driver| {
            driver.start(PLAIN);
            driver.vring(SET_VRING_BASE, 1, 77);
        },
    ),
    violation(
        "features that change while rings run",
        Refused("features changed while virtqueues run"),
        |driver| {
            driver.start(PLAIN);
            let changed = PLAIN | crate::hostile::message::PACKED;
            driver.send(SET_FEATURES, &changed.to_ne_bytes(), &[]);
        },
    ),
    violation("a ring outside memory", OUTSIDE, |driver| {
        addresses(driver, [0x1000, 0x2000, 0x3000]);
    }),
    violation("a used ring across the end of memory", Refused("used ring, 2054 bytes"), |driver| {
        addresses(driver, [right()[0], right()[1], USER + LEN - 64]);
    }),
    violation(
        "an available ring across the last address",
        Refused("available ring, 518 bytes"),
        |driver| addresses(driver, [right()[0], u64::MAX - 1, right()[2]]),
    ),
    violation(
        "a ring of 32768 entries in memory for 4096",
        Refused("descriptor table, 524288 bytes"),
        |driver| {
            driver.size = 32_768;
            addresses(driver, [USER + LEN - 0x1_0000, right()[1], right()[2]]);
        },
    ),
    violation("a ring at an odd address", Refused("descriptors aligned to 16"), |driver| {
        addresses(driver, right().map(|address| address + 1));
    }),
    violation("a ring at an odd file offset", Refused("is not aligned to"), |driver| {
        driver.negotiate(PLAIN);
        let odd = Region { len: LEN - 4096, offset: 9, ..Region::ALL };
        driver.share(&[odd], &[driver.memory.as_fd()]);
        driver.set_up(1);
        driver.enable(1);
    }),
    violation("all parts of a ring at one address", Any, |driver| {
        addresses(driver, [right()[0]; 3]);
        driver.tx().descriptor(0, (buffer(), FRAME, 0, 0));
        driver.kick();
    }),
    violation("one ring as both virtqueues", Refused("not device-"), |driver| {
        driver.negotiate(PLAIN);
        driver.share_all();
        driver.set_up(0);
        driver.set_up(1);
        driver.addresses(0, right());
        (0..2).for_each(|index| driver.enable(index));
        driver.sync();
        let mut tx = driver.tx();
        (0..64).for_each(|index| tx.offer((buffer(), 2048, [0, WRITE][index % 2], 0)));
        driver.kick();
    }),
    violation("a ring started 1000 times", Harmless, |driver| {
        driver.start(PLAIN);
        let (mut tx, mut offered) = (driver.tx(), 0u16);
        for _ in 0..1000 {
            driver.fd(SET_VRING_KICK, 1, driver.kicks[1].as_fd());
            if offered.wrapping_sub(tx.used()) < 256 {
                tx.offer((buffer(), FRAME, 0, 0));
                offered += 1;
            }
            driver.kick();
            driver.sync();
        }
    }),
    violation("a ring enabled and disabled 1000 times", Harmless, |driver| {
        driver.start(PLAIN);
        for round in 0..1000 {
            driver.vring(SET_VRING_ENABLE, 1, round % 2);
        }
        driver.sync();
    }),
    violation("a ring stopped before it was started", Harmless, |driver| {
        driver.negotiate(PLAIN);
        driver.vring(GET_VRING_BASE, 1, 0);
        let base = driver.reply();
        assert!(matches!(base, Some(1) | None), "{base:?}");
    }),
    violation("a ring stopped 100 times", Harmless, |driver| {
        driver.start(PLAIN);
        for _ in 0..100 {
            driver.vring(GET_VRING_BASE, 1, 0);
            driver.reply();
        }
        driver.sync();
    }),
];

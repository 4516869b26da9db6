//! Packed rings.

use crate::hostile::Expect::{Any, Harmless, Malformed, Refused};
use crate::hostile::memory::{GUEST, LEN, parts};
use crate::hostile::message::{INDIRECT as INDIRECT_FEATURE, PACKED, PLAIN, SET_VRING_BASE};
use crate::hostile::ring::{AVAILABLE, FRAME, INDIRECT, NEXT, USED, WRITE, buffer, packed};
use crate::hostile::{HostileDriver, Violation, violation};

/// Posts empty frames without end: half a ring whenever the device is returning the other half.
fn flood(driver: &mut HostileDriver) {
    const HALF: u16 = 512;
    driver.size = 2 * HALF;
    driver.start(PLAIN | PACKED);
    let (memory, ring) = (driver.memory.share(), parts(1)[0]);
    let half = |flags| (0..HALF).flat_map(|id| packed((buffer(), 0, flags, id))).collect();
    let (even, odd): (Vec<u8>, Vec<u8>) = (half(AVAILABLE), half(USED));
    let place = move |half: u64| ring + half * u64::from(HALF) * 16;
    (0..2).for_each(|half| memory.write(place(half), &even));
    let kick = driver.kicks[1].try_clone().expect("a descriptor");
    let mut step = 0u64;
    driver.meanwhile(move || {
        // The flags of the half's last descriptor show that the device has returned all of it.
        let (half, round) = (step % 2, step / 2);
        let back = if round % 2 == 0 { AVAILABLE | USED } else { 0 };
        let last = memory.read_u16(place(half) + u64::from(HALF) * 16 - 2);
        if last & (AVAILABLE | USED) == back {
            memory.write(place(half), if round % 2 == 0 { &odd } else { &even });
            step += 1;
        }
        if step.is_multiple_of(16) {
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        }
    });
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("packed: endless frames of no bytes", Malformed, flood),
    violation(
        "packed: a frame outside memory",
        Refused("is outside the shared memory"),
        |driver| {
            driver.start(PLAIN | PACKED);
            driver.tx().packed(0, (GUEST + LEN, FRAME, AVAILABLE, 0));
            driver.kick();
        },
    ),
    violation(
        "packed: a chain longer than the ring",
        Refused("longer than 16 descriptors"),
        |driver| {
            driver.size = 16;
            driver.start(PLAIN | PACKED);
            let tx = driver.tx();
            (0..16).rev().for_each(|index| {
                tx.packed(index, (buffer(), 16, AVAILABLE | NEXT, 0));
            });
            driver.kick();
        },
    ),
    violation(
        "packed: a chain longer than the maximum",
        Refused("longer than 256 descriptors"),
        |driver| {
            driver.size = 1024;
            driver.start(PLAIN | PACKED);
            let tx = driver.tx();
            (0..1024).rev().for_each(|index| {
                tx.packed(index, (buffer(), 16, AVAILABLE | NEXT, 0));
            });
            driver.kick();
        },
    ),
    violation("packed: descriptors with the wrong wrap counter", Harmless, |driver| {
        driver.start(PLAIN | PACKED);
        let tx = driver.tx();
        (0..256).for_each(|index| tx.packed(index, (0, FRAME, USED, index)));
        driver.kick();
    }),
    violation("packed: unknown buffer ids", Harmless, |driver| {
        driver.start(PLAIN | PACKED);
        let tx = driver.tx();
        (0..100).for_each(|index| tx.packed(index, (buffer(), FRAME, AVAILABLE, 0xffff)));
        driver.kick();
    }),
    violation("packed: flags that change repeatedly", Any, |driver| {
        driver.start(PLAIN | PACKED);
        let (tx, rx) = (driver.tx(), driver.rx());
        (0..256).for_each(|index| tx.packed(index, (buffer(), FRAME, 0, index)));
        (0..256).for_each(|index| rx.packed(index, (buffer(), 2048, WRITE, index)));
        let kick = driver.kicks[1].try_clone().expect("a descriptor");
        let mut round = 0u16;
        driver.meanwhile(move || {
            round = round.wrapping_add(1);
            let flags = [AVAILABLE, USED, AVAILABLE | USED, 0][usize::from(round % 4)];
            for index in 0..256 {
                tx.packed_flags(index, flags);
                rx.packed_flags(index, flags | WRITE);
            }
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    violation(
        "packed: an indirect table without negotiation",
        Refused("indirect tables were not negotiated"),
        |driver| {
            driver.start(PLAIN | PACKED);
            driver.tx().packed(0, (buffer(), 16, AVAILABLE | INDIRECT, 0));
            driver.kick();
        },
    ),
    violation(
        "packed: an indirect table of 16 MiB",
        Refused("is outside the shared memory"),
        |driver| {
            driver.start(PLAIN | PACKED | INDIRECT_FEATURE);
            driver.tx().packed(0, (buffer(), 1 << 24, AVAILABLE | INDIRECT, 0));
            driver.kick();
        },
    ),
    violation(
        "packed: a receive buffer marked device-readable",
        Refused("not device-writable"),
        |driver| {
            driver.start(PLAIN | PACKED);
            driver.rx().packed(0, (buffer(), 2048, AVAILABLE, 0));
        },
    ),
    violation(
        "packed: a base past the end of the ring",
        Refused("virtqueue 1: descriptor 28672 is outside the table of 256"),
        |driver| {
            driver.negotiate(PLAIN | PACKED);
            driver.share_all();
            driver.set_up(1);
            driver.vring(SET_VRING_BASE, 1, 0x7000);
            driver.enable(1);
        },
    ),
];

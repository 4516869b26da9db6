//! Invalid frames, and buffers too small for any frame.

use crate::hostile::Expect::{self, Any, Harmless, Malformed, NoRoom};
use crate::hostile::memory::{BUFFERS, GUEST, LEN, parts};
use crate::hostile::message::{EVENT_INDEX, MERGEABLE, PLAIN};
use crate::hostile::ring::{FRAME, HEADER, NEXT, WRITE, buffer};
use crate::hostile::{HostileDriver, Violation, violation, wait_until};

/// Starts, and transmits a frame of `len` bytes, header included.
fn transmit(driver: &mut HostileDriver, len: u32) {
    driver.start(PLAIN);
    driver.tx().offer((buffer(), len, 0, 0));
    driver.kick();
}

/// Posts as many receive buffers like `descriptor` as the ring holds.
fn receive(driver: &mut HostileDriver, features: u64, descriptor: (u64, u32, u16, u16)) {
    driver.start(features);
    let mut rx = driver.rx();
    (0..256).for_each(|_| rx.offer(descriptor));
    driver.kick();
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("a frame of no bytes and no header", Malformed, |driver| transmit(driver, 0)),
    violation("a frame shorter than its header", Malformed, |driver| transmit(driver, HEADER - 1)),
    violation("a header without a frame", Malformed, |driver| transmit(driver, HEADER)),
    violation("a frame shorter than an Ethernet header", Malformed, |driver| {
        transmit(driver, HEADER + 13);
    }),
    violation("a frame of 64 KiB", Malformed, |driver| transmit(driver, HEADER + 0x1_0000)),
    violation("a frame of 64 KiB in page-sized buffers", Malformed, |driver| {
        driver.start(PLAIN);
        let mut tx = driver.tx();
        (0..16).for_each(|index| tx.descriptor(index, (buffer(), 4096, NEXT, index + 1)));
        tx.descriptor(16, (buffer(), HEADER, 0, 0));
        tx.post(0);
        driver.kick();
    }),
    violation("a frame of 256 MiB that repeats the same 1 MiB", Malformed, |driver| {
        driver.start(PLAIN);
        let mut tx = driver.tx();
        (0..255).for_each(|index| tx.descriptor(index, (GUEST, LEN as u32, NEXT, index + 1)));
        tx.descriptor(255, (GUEST, LEN as u32, 0, 0));
        tx.post(0);
        driver.kick();
    }),
    violation("a virtio-net header with every flag set", Harmless, |driver| {
        driver.memory.write(BUFFERS, &[0xff; 12]);
        transmit(driver, FRAME);
    }),
    violation("frames of no bytes, reposted immediately", Malformed, |driver| {
        driver.start(PLAIN);
        let (mut tx, kick) = (driver.tx(), driver.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| tx.descriptor(index, (buffer(), 0, 0, 0)));
        let mut posted = 0u16;
        driver.meanwhile(move || {
            while posted.wrapping_sub(tx.used()) < 256 {
                tx.post(posted % 256);
                posted = posted.wrapping_add(1);
            }
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    violation("receive buffers of 4 bytes", NoRoom, |driver| {
        receive(driver, PLAIN, (buffer(), 4, WRITE, 0));
    }),
    violation("receive buffers of no bytes", NoRoom, |driver| {
        receive(driver, PLAIN | MERGEABLE, (buffer(), 0, WRITE, 0));
    }),
    violation("receive buffers of 11 bytes that split the header", NoRoom, |driver| {
        receive(driver, PLAIN | MERGEABLE, (buffer(), 11, WRITE, 0));
    }),
    violation("a receive chain of 256 MiB", Harmless, |driver| {
        driver.start(PLAIN);
        let mut rx = driver.rx();
        let len = (LEN - BUFFERS) as u32;
        (0..255).for_each(|index| rx.descriptor(index, (buffer(), len, WRITE | NEXT, index + 1)));
        rx.descriptor(255, (buffer(), len, WRITE, 0));
        rx.post(0);
        assert!(wait_until(|| rx.used() == 1 || driver.is_hung_up()));
    }),
    violation("receive buffers that overlap their own ring", Any, |driver| {
        receive(driver, PLAIN, (GUEST + parts(0)[1], 2048, WRITE, 0));
    }),
    violation("receive buffers that overlap the other ring", Any, |driver| {
        receive(driver, PLAIN, (GUEST + parts(1)[1], 2048, WRITE, 0));
    }),
    violation("calls suppressed at random by used_event", Expect::Harmless, |driver| {
        driver.start(PLAIN | EVENT_INDEX);
        let (mut tx, mut wish) = (driver.tx(), 1u16);
        for _ in 0..200 {
            wish = wish.wrapping_mul(25_173).wrapping_add(13_849);
            tx.set_used_event(wish);
            tx.offer((buffer(), FRAME, 0, 0));
        }
        driver.kick();
    }),
];

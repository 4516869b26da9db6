//! Both sides of a ring in two threads, in every relevant order of events and of memory accesses.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --package dray-ring --release --test loom`
#![cfg(loom)]

use std::ptr::NonNull;

use dray_ring::memif::{ClientRing, MemifLayout, ServerRing};
use dray_ring::packed::{PackedDevice, PackedDriver, PackedLayout};
use dray_ring::split::{SplitDevice, SplitDriver, SplitLayout};
use dray_ring::{Access, AddressSpace, Buffer, DeviceQueue, DriverQueue, QueueSize};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;

/// Content of the buffers. The address of a buffer is the number of its cell, counted from 1.
struct Cells(Vec<UnsafeCell<u32>>);

// SAFETY: the model checks that accesses to a cell never overlap.
unsafe impl Sync for Cells {}

impl Cells {
    /// Accesses a cell. The model checks that no other thread accesses it at the same time, and
    /// that earlier accesses of other threads are visible.
    fn with<R>(&self, number: usize, access: impl FnOnce(&mut u32) -> R) -> R {
        // SAFETY: the model has checked that no other thread has access.
        self.0[number - 1].with_mut(|cell| access(unsafe { &mut *cell }))
    }
}

impl AddressSpace for Cells {
    fn translate(&self, address: u64, _len: u64, _hint: &mut usize) -> Option<NonNull<u8>> {
        NonNull::new(std::ptr::without_provenance_mut(address as usize))
    }
}

/// Plan of what the two threads do.
#[derive(Clone, Copy)]
struct Plan {
    /// Number of chains in all, and of buffers in each of them.
    chains: u32,
    buffers: usize,
    /// True to sleep if there is nothing to do; false to poll again.
    sleep: bool,
}

/// Number that the device adds to a cell.
const ANSWER: u32 = 1000;

/// Takes, checks and answers all chains.
fn device(mut device: impl DeviceQueue, plan: Plan, cells: &Cells, kick: &Notify, call: &Notify) {
    let mut chain_number = 0;
    while chain_number < plan.chains {
        let Some(chain) = device.pop(cells, Access::Write).unwrap() else {
            if !plan.sleep {
                thread::yield_now();
            } else if !device.want_kicks(true) {
                kick.wait();
                device.want_kicks(false);
            }
            continue;
        };
        let segments: Vec<_> =
            std::iter::once(chain.first).chain(device.rest().iter().copied()).collect();
        assert_eq!(segments.len(), plan.buffers);
        for segment in segments {
            cells.with(segment.start.as_ptr() as usize, |cell| {
                assert_eq!(*cell, chain_number, "what was written before the chain was published");
                *cell += ANSWER;
            });
        }
        device.push(&chain, chain_number + 1);
        if device.publish() {
            call.notify();
        }
        chain_number += 1;
    }
}

/// Posts all chains, as far as there is room, and checks each answer.
fn driver(
    mut driver: impl DriverQueue,
    plan: Plan,
    size: usize,
    cells: &Cells,
    kick: &Notify,
    call: &Notify,
) {
    let groups = size / plan.buffers;
    let group = |chain: u32| {
        let first = chain as usize % groups * plan.buffers;
        (first + 1)..=(first + plan.buffers)
    };
    let (mut posted, mut answered) = (0, 0);
    while answered < plan.chains {
        while posted < plan.chains && ((posted - answered) as usize) < groups {
            let buffers: Vec<_> = group(posted)
                .map(|number| {
                    cells.with(number, |cell| *cell = posted);
                    Buffer { address: number as u64, len: 4, access: Access::Write }
                })
                .collect();
            driver.post(&buffers).expect("there is room");
            posted += 1;
        }
        if driver.publish() {
            kick.notify();
        }
        match driver.poll().unwrap() {
            Some(used) => {
                assert_eq!(used.len, answered + 1);
                for number in group(answered) {
                    cells.with(number, |cell| assert_eq!(*cell, answered + ANSWER));
                }
                answered += 1;
            }
            None if !plan.sleep => thread::yield_now(),
            None => {
                if !driver.want_calls(true) {
                    call.wait();
                    driver.want_calls(false);
                }
            }
        }
    }
}

/// Creates a model that explores every schedule with up to three preemptions.
fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model
}

/// Checks the plan with the two sides that `make` creates for a ring of two.
fn check<A, B>(plan: Plan, make: impl Fn(QueueSize) -> (A, B) + Send + Sync + 'static)
where
    A: DriverQueue + 'static,
    B: DeviceQueue + 'static,
{
    bounded().check(move || {
        let size = 2;
        let (a, b) = make(QueueSize::new(2).unwrap());
        let cells = Arc::new(Cells((0..size).map(|_| UnsafeCell::new(0)).collect()));
        let (kick, call) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let theirs = (cells.clone(), kick.clone(), call.clone());
        let thread = thread::spawn(move || device(b, plan, &theirs.0, &theirs.1, &theirs.2));
        driver(a, plan, size, &cells, &kick, &call);
        thread.join().unwrap();
    });
}

fn split_sides(size: QueueSize, event_index: bool) -> (SplitDriver, SplitDevice) {
    let ring = SplitLayout::for_model(size);
    (SplitDriver::new(ring, event_index), SplitDevice::new(ring, 0, false, event_index))
}

fn packed_sides(size: QueueSize, event_index: bool) -> (PackedDriver, PackedDevice) {
    let ring = PackedLayout::for_model(size);
    let device = PackedDevice::new(ring, 0x8000, false, event_index).unwrap();
    (PackedDriver::new(ring, event_index), device)
}

fn split(plan: Plan, event_index: bool) {
    check(plan, move |size| split_sides(size, event_index));
}

fn packed(plan: Plan, event_index: bool) {
    check(plan, move |size| packed_sides(size, event_index));
}

/// Checks that a driver that sees one of two chains returned together also sees the other.
fn check_together<A, B>(make: impl Fn(QueueSize) -> (A, B) + Send + Sync + 'static)
where
    A: DriverQueue + 'static,
    B: DeviceQueue + 'static,
{
    const ROUNDS: u32 = 2;
    loom::model(move || {
        let (mut driver, mut device) = make(QueueSize::new(2).unwrap());
        let thread = thread::spawn(move || {
            let cells = Cells(Vec::new());
            for _ in 0..ROUNDS {
                let chains = [1, 2].map(|len| {
                    loop {
                        match device.pop(&cells, Access::Write).unwrap() {
                            Some(chain) => break (chain, len),
                            None => thread::yield_now(),
                        }
                    }
                });
                device.push_together(&chains);
                device.publish();
            }
        });
        for _ in 0..ROUNDS {
            for address in [1, 2] {
                driver.post(&[Buffer { address, len: 4, access: Access::Write }]).unwrap();
            }
            driver.publish();
            let first = loop {
                match driver.poll().unwrap() {
                    Some(used) => break used,
                    None => thread::yield_now(),
                }
            };
            let second = driver.poll().unwrap().expect("the other one");
            assert_eq!((first.len, second.len), (1, 2));
        }
        thread.join().unwrap();
    });
}

/// Checks a memif ring of two entries on which the client transmits `frames`, each of `parts`
/// entries, with a server that sleeps (`sleep`) or polls again if there is nothing to do.
fn check_memif_transmit(frames: u32, parts: u32, sleep: bool) {
    bounded().check(move || {
        let (mut client, mut server) = memif_sides();
        let cells = Arc::new(Cells((0..2).map(|_| UnsafeCell::new(0)).collect()));
        let event = Arc::new(Notify::new());
        let theirs = (cells.clone(), event.clone());
        let thread = thread::spawn(move || {
            let (cells, event) = theirs;
            let mut expected = 0;
            while expected < frames * parts {
                if server.poll().unwrap() == 0 {
                    if !sleep {
                        thread::yield_now();
                    } else if !server.want_interrupts(true) {
                        event.wait();
                        server.want_interrupts(false);
                    }
                    continue;
                }
                let entry = server.posted(0);
                assert_eq!(
                    (entry.len, entry.more),
                    (expected, !(expected + 1).is_multiple_of(parts))
                );
                cells.with(entry.offset as usize + 1, |cell| assert_eq!(*cell, expected));
                expected += 1;
                server.take(1);
                server.publish();
            }
        });
        let mut posted = 0;
        while posted < frames * parts {
            let returned = client.poll().unwrap();
            client.take(returned);
            if u32::from(client.room()) < parts {
                thread::yield_now();
                continue;
            }
            for part in 1..=parts {
                cells.with(usize::from(client.entry(0)) + 1, |cell| *cell = posted);
                client.post(client.entry(0).into(), posted, part < parts);
                posted += 1;
            }
            if client.publish() {
                event.notify();
            }
        }
        thread.join().unwrap();
    });
}

/// Like [`check_memif_transmit`], in the other direction: the server transmits into entries that
/// the client posts empty, and the client sleeps.
fn check_memif_receive(frames: u32, parts: u32, sleep: bool) {
    bounded().check(move || {
        let (mut client, mut server) = memif_sides();
        let cells = Arc::new(Cells((0..2).map(|_| UnsafeCell::new(0)).collect()));
        let event = Arc::new(Notify::new());
        let theirs = (cells.clone(), event.clone());
        let thread = thread::spawn(move || {
            let (cells, event) = theirs;
            for number in 0..frames * parts {
                while server.poll().unwrap() == 0 {
                    thread::yield_now();
                }
                cells.with(server.posted(0).offset as usize + 1, |cell| *cell = number);
                let more = !(number + 1).is_multiple_of(parts);
                server.fill(0, number, more);
                server.take(1);
                if !more && server.publish() {
                    event.notify();
                }
            }
        });
        let mut expected = 0;
        while expected < frames * parts {
            while client.room() > 0 {
                client.post(client.entry(0).into(), 0, false);
            }
            client.publish();
            let returned = client.poll().unwrap();
            // Either all parts of a frame are returned, or none.
            assert!(u32::from(returned).is_multiple_of(parts));
            for index in 0..returned {
                let entry = client.returned(index);
                assert_eq!(
                    (entry.len, entry.more),
                    (expected, !(expected + 1).is_multiple_of(parts))
                );
                cells.with(usize::from(entry.entry) + 1, |cell| assert_eq!(*cell, expected));
                expected += 1;
            }
            client.take(returned);
            if returned > 0 {
                continue;
            }
            if !sleep {
                thread::yield_now();
            } else if !client.want_interrupts(true) {
                event.wait();
                client.want_interrupts(false);
            }
        }
        thread.join().unwrap();
    });
}

fn memif_sides() -> (ClientRing, ServerRing) {
    let ring = MemifLayout::for_model(QueueSize::new(2).unwrap());
    (ClientRing::new(ring), ServerRing::new(ring).unwrap())
}

// The third chain reuses the place of the first, and the fourth is in the second round as well.
const POLLING: Plan = Plan { chains: 4, buffers: 1, sleep: false };
const CHAINED: Plan = Plan { chains: 3, buffers: 2, sleep: false };
const SLEEPING: Plan = Plan { chains: 3, buffers: 1, sleep: true };

#[test]
fn split_polling() {
    split(POLLING, false);
}

#[test]
fn split_chained() {
    split(CHAINED, false);
}

#[test]
fn split_sleeping() {
    split(SLEEPING, false);
}

#[test]
fn split_sleeping_by_event_index() {
    split(SLEEPING, true);
}

#[test]
fn packed_polling() {
    packed(POLLING, false);
}

#[test]
fn packed_chained() {
    packed(CHAINED, false);
}

#[test]
fn packed_sleeping() {
    packed(SLEEPING, false);
}

#[test]
fn packed_sleeping_by_event_index() {
    packed(SLEEPING, true);
}

#[test]
fn split_together() {
    check_together(|size| split_sides(size, false));
}

#[test]
fn packed_together() {
    check_together(|size| packed_sides(size, false));
}

#[test]
fn memif_polling() {
    check_memif_transmit(5, 1, false);
    check_memif_receive(5, 1, false);
}

#[test]
fn memif_chained() {
    check_memif_transmit(3, 2, false);
    check_memif_receive(3, 2, false);
}

#[test]
fn memif_sleeping() {
    check_memif_transmit(3, 1, true);
    check_memif_receive(3, 1, true);
}

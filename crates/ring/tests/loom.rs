//! Both sides of a ring in two threads, in every order of events and of memory that matters.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --package dray-ring --release --test loom`
#![cfg(loom)]

use std::ptr::NonNull;

use dray_ring::packed::{PackedDevice, PackedDriver, PackedLayout};
use dray_ring::split::{SplitDevice, SplitDriver, SplitLayout};
use dray_ring::{Access, AddressSpace, Buffer, DeviceQueue, DriverQueue, QueueSize};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;

/// What the buffers hold. The address of a buffer is the number of its cell, from 1 on.
struct Cells(Vec<UnsafeCell<u32>>);

// SAFETY: who uses a cell when is what the model checks.
unsafe impl Sync for Cells {}

impl Cells {
    /// Accesses a cell. That nobody else does so at the same time, and that what others did before
    /// is visible, is checked by the model.
    fn with<R>(&self, number: usize, access: impl FnOnce(&mut u32) -> R) -> R {
        // SAFETY: the model has made sure that nobody else has access.
        self.0[number - 1].with_mut(|cell| access(unsafe { &mut *cell }))
    }
}

impl AddressSpace for Cells {
    fn translate(&self, address: u64, _len: u64, _hint: &mut usize) -> Option<NonNull<u8>> {
        NonNull::new(std::ptr::without_provenance_mut(address as usize))
    }
}

/// What the two threads do.
#[derive(Clone, Copy)]
struct Plan {
    /// Chains in all, and how many buffers each of them has.
    chains: u32,
    buffers: usize,
    /// Whether to sleep where there is nothing to do, or to look again.
    sleep: bool,
}

/// What the device adds to a cell.
const ANSWER: u32 = 1000;

/// Takes all chains, checks and answers each.
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

/// Posts all chains as far as there is room, and checks each answer.
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

/// Checks the plan with the two sides that `make` makes of a ring of two.
fn check<A, B>(plan: Plan, make: impl Fn(QueueSize) -> (A, B) + Send + Sync + 'static)
where
    A: DriverQueue + 'static,
    B: DeviceQueue + 'static,
{
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(move || {
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

/// Checks that a driver that sees one of two chains that were returned together sees the other.
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

// The third chain goes where the first one was, the fourth into the second round of it.
const LOOKING: Plan = Plan { chains: 4, buffers: 1, sleep: false };
const CHAINED: Plan = Plan { chains: 3, buffers: 2, sleep: false };
const SLEEPING: Plan = Plan { chains: 3, buffers: 1, sleep: true };

#[test]
fn split_looking() {
    split(LOOKING, false);
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
fn packed_looking() {
    packed(LOOKING, false);
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

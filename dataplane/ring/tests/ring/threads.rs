//! Both sides of a ring in two threads that sleep whenever there is nothing to do.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use dray_ring::packed::PackedLayout;
use dray_ring::split::SplitLayout;
use dray_ring::{Access, Buffer, DeviceQueue, DriverQueue, QueueSize};

use crate::memory::{DATA, Layout, Memory};

const CHAINS: u32 = 30_000;
const SIZE: u32 = 16;
const BATCH: usize = 5;

/// Sleeps until the other side calls. If it never does, an event was lost.
fn sleep(called: &Receiver<()>) {
    called.recv_timeout(Duration::from_secs(60)).expect("to be woken");
}

fn device(
    mut device: impl DeviceQueue,
    memory: &Memory,
    kick: &Receiver<()>,
    call: &SyncSender<()>,
) {
    let mut number = 0;
    while number < CHAINS {
        let mut idle = true;
        for _ in 0..BATCH {
            let Some(chain) = device.pop(&memory.guest, Access::Write).unwrap() else { break };
            let number_at = chain.first.start.cast::<u32>();
            // SAFETY: a buffer of 4 bytes, which the ring has handed to this thread.
            unsafe {
                assert_eq!(number_at.read(), number);
                number_at.write(!number);
            }
            device.push(&chain, 4);
            number += 1;
            idle = false;
        }
        if device.publish() {
            // One pending call is enough.
            let _ = call.try_send(());
        }
        if idle && !device.want_kicks(true) {
            sleep(kick);
            device.want_kicks(false);
        }
    }
}

fn driver(
    mut driver: impl DriverQueue,
    memory: &Memory,
    kick: &SyncSender<()>,
    call: &Receiver<()>,
) {
    // The number posted in each buffer: one buffer for each identity.
    let mut numbers = [0; SIZE as usize];
    let (mut posted, mut answered) = (0, 0);
    while answered < CHAINS {
        let mut idle = true;
        for _ in 0..BATCH {
            let Some(id) = driver.next_id().filter(|_| posted < CHAINS) else { break };
            let address = DATA + 4 * u64::from(id);
            // SAFETY: 4 aligned bytes of a buffer that is not posted.
            unsafe { memory.at(address, 4).cast::<u32>().write(posted) };
            let buffer = Buffer { address, len: 4, access: Access::Write };
            assert_eq!(driver.post(&[buffer]), Some(id));
            numbers[usize::from(id)] = posted;
            posted += 1;
            idle = false;
        }
        if driver.publish() {
            let _ = kick.try_send(());
        }
        while let Some(used) = driver.poll().unwrap() {
            // SAFETY: as above; the buffer is ours again.
            let answer =
                unsafe { memory.at(DATA + 4 * u64::from(used.id), 4).cast::<u32>().read() };
            assert_eq!((numbers[usize::from(used.id)], answer), (answered, !answered));
            answered += 1;
            idle = false;
        }
        if idle && !driver.want_calls(true) {
            sleep(call);
            driver.want_calls(false);
        }
    }
}

fn run<L: Layout>(base: u16, event_index: bool) {
    let (memory, layout) = Memory::new::<L>(QueueSize::new(SIZE).unwrap(), Access::Write);
    let ours = layout.driver(event_index);
    let theirs = layout.device(base, false, event_index);
    let (kick, kicked) = sync_channel(1);
    let (call, called) = sync_channel(1);
    let memory = &memory;
    std::thread::scope(|scope| {
        scope.spawn(move || device(theirs, memory, &kicked, &call));
        driver(ours, memory, &kick, &called);
    });
}

#[test]
fn sleeping_sides_are_always_woken() {
    for event_index in [false, true] {
        run::<SplitLayout>(0, event_index);
        run::<PackedLayout>(0x8000, event_index);
    }
}

//! A device against a driver that writes anything at any time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;

use dray_ring::packed::PackedLayout;
use dray_ring::split::SplitLayout;
use dray_ring::{Access, AddressSpace, CHAIN_MAX, Chain, DeviceQueue, Plain, Segment};

use crate::bytes::Bytes;
use crate::memory::{Layout, Memory};

/// Memory of a driver that changes the ring while the device reads it.
struct Restless<'a, 'b, L> {
    memory: &'a Memory,
    bytes: RefCell<&'a mut Bytes<'b>>,
    place: u16,
    /// Number of address look-ups.
    asked: Cell<u16>,
    layout: std::marker::PhantomData<L>,
}

impl<'a, 'b, L> Restless<'a, 'b, L> {
    fn new(memory: &'a Memory, bytes: &'a mut Bytes<'b>, place: u16) -> Self {
        let layout = std::marker::PhantomData;
        Self { memory, bytes: RefCell::new(bytes), place, asked: Cell::new(0), layout }
    }

    /// Checks the look-ups of a call that may exceed the `allowed` number by `chain` addresses.
    fn check(&self, allowed: &mut Option<u32>, chain: u32) {
        let asked = u32::from(self.asked.get());
        match allowed {
            None => {}
            Some(0) => assert_eq!(asked, 0, "nothing is left to be read"),
            Some(allowed) => {
                assert!(asked <= *allowed + chain, "{asked} addresses of {allowed}");
                *allowed = allowed.saturating_sub(asked);
            }
        }
        assert!(asked <= chain.max(64), "{asked} addresses");
    }
}

impl<L: Layout> AddressSpace for Restless<'_, '_, L> {
    fn translate(&self, address: u64, len: u64, hint: &mut usize) -> Option<NonNull<u8>> {
        self.asked.set(self.asked.get() + 1);
        let found = self.memory.guest.translate(address, len, hint);
        let mut bytes = self.bytes.borrow_mut();
        if bytes.byte() & 3 == 3 {
            self.memory.disturb::<L>(&mut bytes, self.place, false);
        }
        found
    }
}

/// Runs the operations in `bytes` on a device with a malicious driver.
pub(crate) fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    if bytes.flag() {
        run_layout::<PackedLayout>(&mut bytes);
    } else {
        run_layout::<SplitLayout>(&mut bytes);
    }
}

fn run_layout<L: Layout>(bytes: &mut Bytes) {
    let size = bytes.size();
    let flags = bytes.byte();
    let access = if flags & 4 != 0 { Access::Write } else { Access::Read };
    let (memory, layout) = Memory::new::<L>(size, access);
    let (indirect, event_index) = (flags & 0x30 != 0, flags & 2 != 0);
    let base = match (L::PACKED, flags & 8 != 0) {
        (false, false) => 0,
        (false, true) => bytes.u16(),
        (true, false) => 0x8000,
        (true, true) => bytes.u16() & (0x8000 | (size.get() - 1)),
    };
    let mut device = layout.device(base, indirect, event_index);
    let mut popped = VecDeque::new();
    // Number of descriptors that may still be read.
    let mut allowed = None::<u32>;
    while !bytes.is_empty() {
        match bytes.byte() % 18 {
            16 => {
                let budget = u32::from(bytes.byte());
                device.set_budget(budget);
                allowed = Some(budget);
            }
            17 => {
                let place = device.base();
                // Some calls end because a buffer is refused.
                let (most, room) = (usize::from(place % 65), usize::from(bytes.byte() % 80));
                let restless = Restless::<L>::new(&memory, bytes, place);
                let mut plain = Vec::<Plain>::new();
                let mut refused = 0;
                let result = device.pop_plain(&restless, access, most, |buffer| {
                    let takes = plain.len() < room;
                    if takes {
                        plain.push(buffer);
                    } else {
                        refused += 1;
                    }
                    takes
                });
                restless.check(&mut allowed, 0);
                // A refused buffer does not count.
                allowed = allowed.map(|allowed| allowed + refused);
                assert!(refused <= 1 && plain.len() <= room.min(most));
                if result.is_err() {
                    assert_eq!(device.base(), place);
                    device.set_budget(u32::MAX);
                    allowed = None;
                    continue;
                }
                if !L::PACKED {
                    assert_eq!(device.base(), place.wrapping_add(plain.len() as u16));
                }
                for buffer in plain {
                    // An empty buffer may be anywhere.
                    let held = buffer.len == 0 || memory.holds(buffer.start, buffer.len);
                    assert!(held, "{buffer:?}");
                    let first = Segment { start: buffer.start, len: buffer.len };
                    popped.push_back(Chain { id: buffer.id, slots: 1, first, more: false });
                }
                let out: u32 = popped.iter().map(|chain| u32::from(chain.slots)).sum();
                assert!(out <= size.get().into(), "{out} entries of {}", size.get());
            }
            0..6 => memory.disturb::<L>(bytes, device.base(), false),
            6..11 => {
                let place = device.base();
                let restless = Restless::<L>::new(&memory, bytes, place);
                let result = device.pop(&restless, access);
                // One for each buffer, one for a table, one for the excess buffer.
                restless.check(&mut allowed, u32::from(CHAIN_MAX) + 2);
                let Ok(Some(chain)) = result else {
                    // A device that continues after a violation is where it was.
                    assert_eq!(device.base(), place);
                    continue;
                };
                let rest = device.rest();
                assert!(rest.len() < CHAIN_MAX.into());
                assert_eq!(chain.more, !rest.is_empty());
                for segment in rest.iter().chain([&chain.first]) {
                    assert!(memory.holds(segment.start, segment.len), "{segment:?}");
                }
                popped.push_back(chain);
                let out: u32 = popped.iter().map(|chain| u32::from(chain.slots)).sum();
                assert!(out <= size.get().into(), "{out} entries of {}", size.get());
            }
            11 => {
                let count = usize::from(bytes.byte()) % (popped.len() + 1);
                let back = popped.split_off(popped.len() - count);
                device.unpop(back.iter().map(|chain| chain.slots).sum());
            }
            12 | 13 => {
                if let Some(chain) = popped.pop_front() {
                    device.push(&chain, bytes.u32());
                }
            }
            14 => drop(device.publish()),
            _ => drop(device.want_kicks(bytes.flag())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn device_survives_lying_driver(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            run(&bytes);
        }
    }
}

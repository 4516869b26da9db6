//! A driver against a device that writes anything at any time.

use dray_ring::packed::PackedLayout;
use dray_ring::split::SplitLayout;
use dray_ring::{Access, Buffer, DriverQueue};

use crate::bytes::Bytes;
use crate::memory::{DATA, Layout, Memory};

/// Runs the operations in `bytes` on a driver with a malicious device.
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
    let (memory, layout) = Memory::new::<L>(size, Access::Write);
    let mut driver = layout.driver(bytes.flag());
    // Number of descriptors of each posted chain; 0 if it is not posted.
    let mut out = vec![0u16; size.get().into()];
    let mut free = size.get();
    // Number taken back: chains (split) or descriptors (packed).
    let mut taken = 0u64;
    while !bytes.is_empty() {
        match bytes.byte() % 16 {
            0..6 => {
                let (at, entries) = (taken % u64::from(size.get()), u64::from(size.get()));
                let wrap = if (taken / entries).is_multiple_of(2) { 0x8000 } else { 0 };
                let place = if L::PACKED { at as u16 | wrap } else { taken as u16 };
                memory.disturb::<L>(bytes, place, true);
            }
            6..9 => {
                let count = match bytes.byte() {
                    byte @ 0..64 => u16::from(byte % 8),
                    64..72 => free.saturating_add(1).min(1000),
                    72..80 => free.min(1000),
                    _ => 1,
                };
                let len = u32::from(bytes.byte());
                let buffer =
                    Buffer { address: DATA + 256 * u64::from(len), len, access: Access::Write };
                let next_id = driver.next_id();
                let id = driver.post(&vec![buffer; count.into()]);
                assert_eq!(next_id.is_some(), free > 0);
                assert_eq!(id, next_id.filter(|_| (1..=free).contains(&count)));
                if let Some(id) = id {
                    let known = std::mem::replace(&mut out[usize::from(id)], count);
                    assert_eq!(known, 0, "{id} was out");
                    free -= count;
                }
            }
            9..11 => drop(driver.publish()),
            11..15 => {
                if let Ok(Some(used)) = driver.poll() {
                    let count = std::mem::take(&mut out[usize::from(used.id)]);
                    assert_ne!(count, 0, "{} was not out", used.id);
                    free += count;
                    taken += if L::PACKED { u64::from(count) } else { 1 };
                }
            }
            _ => drop(driver.want_calls(bytes.flag())),
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
        fn driver_survives_lying_device(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            run(&bytes);
        }
    }
}

//! Buffers that circulate in batches, as in a port.

use arrayvec::ArrayVec;
use dray_ring::packed::PackedLayout;
use dray_ring::split::SplitLayout;
use dray_ring::{Access, Buffer, DeviceQueue, DriverQueue, Plain, QueueSize, Used};
use proptest::prelude::*;

use crate::memory::{DATA, Layout, Memory};

/// Every identity keeps its buffer, however many of them are in flight at a time.
fn go_round<L: Layout>(size: u32, batches: &[u16]) {
    let size = QueueSize::new(size).unwrap();
    let (memory, layout) = Memory::new::<L>(size, Access::Write);
    let base = if L::PACKED { 0x8000 } else { 0 };
    let (mut driver, mut device) = (layout.driver(false), layout.device(base, false, false));
    let address = |id: u16| DATA + u64::from(id) * 8;
    while let Some(id) = driver.next_id() {
        let buffer = Buffer { address: address(id), len: 8, access: Access::Write };
        assert_eq!(driver.post(&[buffer]), Some(id));
    }
    driver.publish();
    for &batch in batches {
        let mut plain = Vec::<Plain>::new();
        let most = usize::from(batch);
        let mut keep = |buffer| {
            plain.push(buffer);
            true
        };
        assert!(!device.pop_plain(&memory.guest, Access::Write, most, &mut keep).unwrap());
        assert_eq!(plain.len(), most.min(size.get().into()));
        for buffer in &plain {
            assert_eq!((buffer.start, buffer.len), (memory.at(address(buffer.id), 8), 8));
            device.push_plain(std::iter::once((buffer.id, 3)));
        }
        device.publish();
        let mut used = ArrayVec::<Used, 64>::new();
        driver.poll_each(64, |one| used.push(one)).unwrap();
        let expected: Vec<_> = plain.iter().map(|buffer| Used { id: buffer.id, len: 3 }).collect();
        assert_eq!(used.as_slice(), expected);
        driver.repost(used.len() as u16);
        assert_eq!(driver.next_id(), None, "all are out again");
        driver.publish();
    }
}

proptest! {
    #[test]
    fn batches_of_buffers_go_round(
        size in (1u32..7).prop_map(|power| 1 << power),
        batches in prop::collection::vec(0u16..64, 0..100),
    ) {
        go_round::<SplitLayout>(size, &batches);
        go_round::<PackedLayout>(size, &batches);
    }
}

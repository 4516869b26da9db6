//! What a back end gives back, and what the port makes of it.

use std::ptr::{self, NonNull};

use dray_ring::packed::{PackedDevice, PackedLayout};
use dray_ring::split::{SplitDevice, SplitLayout};
use dray_ring::{Access, AddressSpace, DeviceQueue};

use super::memory::{HEADER_LEN, Place, SLOT_FRAME};
use super::queue::ReceiveQueue;
use super::{Device, SharedMemory, VirtioUri, control};
use crate::attention::Attention;
use crate::event::PeerEvent;
use crate::gathered::Gathered;
use crate::pairs::ReceiveQueue as _;
use crate::slot::Failure;
use crate::{FRAME_LIMIT, Frame, PortUri};

/// The address that a buffer has at the port is the one that it has here.
struct SameProcess;

impl AddressSpace for SameProcess {
    fn translate(&self, address: u64, _len: u64, _hint: &mut usize) -> Option<NonNull<u8>> {
        NonNull::new(ptr::with_exposed_provenance_mut(address as usize))
    }
}

/// Gives back a buffer for each of `returned`: how many buffers its header says that the frame takes,
/// and the bytes that were written.
fn give_back(device: &mut impl DeviceQueue, returned: &[(u16, usize)]) {
    for (buffers, len) in returned {
        let chain = device.pop(&SameProcess, Access::Write).unwrap().expect("all are posted");
        // SAFETY: the header lies in the buffer.
        unsafe { chain.first.start.add(HEADER_LEN - 2).cast::<u16>().write(buffers.to_le()) };
        device.push(&chain, *len as u32);
    }
    device.publish();
}

/// The lengths of the frames that a port lends after that, in either layout of the ring.
fn received(returned: &[(u16, usize)]) -> Result<Vec<usize>, Failure> {
    let [split, packed] = [false, true].map(|packed| {
        let text = format!("virtio:/nowhere?size=16&hugepages=0&packed={}", u8::from(packed));
        let Ok(PortUri::Virtio(uri)) = text.parse() else { panic!("{text}") };
        let device = Device { pairs: Vec::new(), memory: SharedMemory::new(&uri).unwrap() };
        let place = device.memory.place(0);
        let (slots, event) = (device.memory.slots(&place), || {
            PeerEvent::for_peer(&Attention::new().unwrap()).unwrap()
        });
        let queue = control::queue(&device, &uri, &place).unwrap();
        let mut port = ReceiveQueue::new(queue, slots, event(), event());
        back_end(&device, &uri, &place, returned);
        let (mut lens, mut gathered) = (Vec::new(), Gathered::new());
        let result = port.receive(&mut gathered, &mut |frames| {
            lens.extend(frames.iter().map(Frame::len));
            frames.len()
        });
        result.map(|lent| {
            assert_eq!(lent, lens.len());
            lens
        })
    });
    assert_eq!(split, packed, "{returned:?}");
    split
}

fn back_end(device: &Device, uri: &VirtioUri, place: &Place, returned: &[(u16, usize)]) {
    let [a, b, c] =
        [place.descriptors, place.driver, place.device].map(|offset| device.memory.at(offset));
    if uri.packed {
        // SAFETY: the parts lie in the memory, which outlives this.
        let layout = unsafe { PackedLayout::new(uri.size, a, b, c) }.unwrap();
        give_back(&mut PackedDevice::new(layout, 0x8000, false, false).unwrap(), returned);
    } else {
        // SAFETY: as above.
        let layout = unsafe { SplitLayout::new(uri.size, a, b, c) }.unwrap();
        give_back(&mut SplitDevice::new(layout, 0, false, false), returned);
    }
}

#[test]
fn frames_lie_in_as_many_buffers_as_their_headers_say() {
    const FULL: usize = HEADER_LEN + SLOT_FRAME;
    assert_eq!(received(&[(1, 13), (1, 72), (1, FULL)]), Ok(vec![1, 60, SLOT_FRAME]));
    // Those behind the first have no header.
    assert_eq!(received(&[(1, 72), (2, FULL), (0, 100), (1, 72)]), Ok(vec![60, 2148, 60]));
    // The second one is on its way.
    assert_eq!(received(&[(1, 72), (2, FULL)]), Ok(vec![60]));
    // Given back as it was.
    assert_eq!(received(&[(1, 0), (1, 72)]), Ok(vec![60]));
    assert_eq!(received(&[(1, 72), (1, 0)]), Ok(vec![60]));
}

#[test]
fn what_cannot_be_a_frame_is_a_lie() {
    const FULL: usize = HEADER_LEN + SLOT_FRAME;
    const { assert!(5 * FULL > FRAME_LIMIT) };
    for returned in [
        &[(1, HEADER_LEN)][..],
        &[(2, HEADER_LEN), (0, 0)],
        &[(1, HEADER_LEN - 1)],
        &[(1, FULL + 1)],
        &[(2, FULL), (0, FULL + 1)],
        &[(0, 72)],
        &[(6, FULL), (0, FULL), (0, FULL), (0, FULL), (0, FULL), (0, FULL)],
        &[(5, FULL), (0, FULL), (0, FULL), (0, FULL), (0, FULL)],
        &[(u16::MAX, 72)],
    ] {
        let lie = received(returned);
        assert!(matches!(lie, Err(Failure::Header { .. })), "{returned:?}: {lie:?}");
    }
}

//! The virtio-net headers of a virtqueue, and the features that give them a meaning (Virtio 1.3,
//! sections 5.1.3 and 5.1.6).

use std::ptr::NonNull;

use dray_wire::offload::{
    self, Accept, HEADERS_MAX, Layout, Offload, Offloads, VIRTIO_NET_LEN, VirtioNet,
};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
    VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
};

use crate::frame::{FRAME_LIMIT, Frame, OFFLOADED_LIMIT};

/// Features by which a driver leaves work on its frames to the device: their numbers, and their
/// names for people. The others need the first one.
pub(crate) const TO_DEVICE: [(u32, &str); 5] = [
    (VIRTIO_NET_F_CSUM, "csum"),
    (VIRTIO_NET_F_HOST_TSO4, "host_tso4"),
    (VIRTIO_NET_F_HOST_TSO6, "host_tso6"),
    (VIRTIO_NET_F_HOST_ECN, "host_ecn"),
    (VIRTIO_NET_F_HOST_USO, "host_uso"),
];
/// Features by which a device leaves work on its frames to the driver, as in `TO_DEVICE`.
pub(crate) const TO_DRIVER: [(u32, &str); 6] = [
    (VIRTIO_NET_F_GUEST_CSUM, "guest_csum"),
    (VIRTIO_NET_F_GUEST_TSO4, "guest_tso4"),
    (VIRTIO_NET_F_GUEST_TSO6, "guest_tso6"),
    (VIRTIO_NET_F_GUEST_ECN, "guest_ecn"),
    (VIRTIO_NET_F_GUEST_USO4, "guest_uso4"),
    (VIRTIO_NET_F_GUEST_USO6, "guest_uso6"),
];

/// Returns the offloads that the driver leaves to the device with these features.
pub(crate) fn to_device(features: u64) -> Offloads {
    let [checksum, tcp4, tcp6, ecn, udp] = TO_DEVICE.map(|(number, _)| features & 1 << number != 0);
    Offloads { checksum, tcp4, tcp6, ecn, udp4: udp, udp6: udp }
}

/// Returns the offloads that the device leaves to the driver with these features.
pub(crate) fn to_driver(features: u64) -> Offloads {
    let [checksum, tcp4, tcp6, ecn, udp4, udp6] =
        TO_DRIVER.map(|(number, _)| features & 1 << number != 0);
    Offloads { checksum, tcp4, tcp6, ecn, udp4, udp6 }
}

/// Returns what is left to do on a frame that was copied to `frame`, with its header `header`. A
/// checksum that only this port can complete is completed. `None` if the frame cannot be passed on:
/// the header is invalid, or asks for more than `offloads`, or the frame is too long.
pub(crate) fn accept(header: VirtioNet, frame: &mut [u8], offloads: Offloads) -> Option<Offload> {
    let offload = match header.check(frame, frame.len(), offloads).ok()? {
        Accept::Carry(offload) => offload,
        Accept::Complete { start, at } => {
            offload::complete(frame, start, at);
            Offload::None
        }
        Accept::CompleteSctp { start, end } => {
            offload::complete_sctp(&mut frame[..end], start);
            Offload::None
        }
    };
    let limit = if offload == Offload::None { FRAME_LIMIT } else { OFFLOADED_LIMIT };
    (frame.len() <= limit).then_some(offload)
}

/// Length of the longest header, in bytes.
pub(crate) const HEADER_MAX: usize = 12;

/// How the headers of a queue are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    /// Length in bytes, 10 or 12.
    pub(crate) len: u32,
    /// True if a frame may be spread over several chains, which its header then counts.
    pub(crate) mergeable: bool,
    /// Negotiated offloads: those that the peer may leave to this port, or the reverse.
    pub(crate) offloads: Offloads,
}

impl Headers {
    /// Returns what is left to do on the frame of `len` bytes at `start`, whose header is `header`.
    /// `None` if it must be copied first, because its checksum is written here, or if the header
    /// is invalid.
    ///
    /// # Safety
    /// The frame must be mapped.
    pub(crate) unsafe fn carried(
        self,
        header: [u8; VIRTIO_NET_LEN],
        start: NonNull<u8>,
        len: u32,
    ) -> Option<Offload> {
        // SAFETY: by the contract.
        let frame = unsafe { Frame::shared_with(start, len, Offload::Checksum) };
        let mut head = [0; HEADERS_MAX];
        let count = frame.copy_from(0, &mut head);
        match VirtioNet::read(header).check(&head[..count], frame.len(), self.offloads) {
            Ok(Accept::Carry(offload)) => Some(offload),
            Ok(_) | Err(_) => None,
        }
    }

    /// Like [`carried`](Self::carried), for a frame in the buffer at `start`, behind its header.
    ///
    /// # Safety
    /// Header and frame must be mapped.
    #[inline]
    pub(crate) unsafe fn read(self, start: NonNull<u8>, len: u32) -> Option<Offload> {
        // SAFETY: by the contract; the peer may be writing there, and any bytes are a valid value.
        let first = unsafe { start.cast::<u16>().read_unaligned() };
        // Flags and kind of segmentation, in the order of bytes in memory.
        if first & u16::from_ne_bytes([1, 0xff]) == 0 {
            return Some(Offload::None);
        }
        // SAFETY: by the contract, as above.
        unsafe {
            let header = start.cast::<[u8; VIRTIO_NET_LEN]>().read_unaligned();
            self.carried(header, start.add(self.len as usize), len)
        }
    }

    /// Returns the header of a frame; `None` if the peer does not take over what is left to do on
    /// it.
    pub(crate) fn of(self, frame: &Frame<'_>) -> Option<VirtioNet> {
        let mut head = [0; HEADERS_MAX];
        let count = frame.copy_from(0, &mut head);
        let layout = Layout::of(&head[..count], frame.len())?;
        let offload = frame.offload();
        let takes = self.offloads.handle(offload, &layout);
        takes.then(|| VirtioNet::of(offload, &layout, frame.len()))?
    }

    /// Writes the header of a frame that is spread over `buffers` buffers. Returns false if the
    /// driver does not take over the frame's offload, or if the frame's own headers do not fit it.
    ///
    /// # Safety
    /// `len` bytes must be mapped at `to`.
    #[inline]
    pub(crate) unsafe fn write(self, to: NonNull<u8>, frame: &Frame<'_>, buffers: u16) -> bool {
        // SAFETY: by the contract.
        unsafe {
            if frame.has_offload() {
                return self.write_offload(to, frame, buffers);
            }
            self.write_plain(to, buffers);
        }
        true
    }

    /// Writes the header of a frame without an offload.
    ///
    /// # Safety
    /// As for [`write`](Self::write).
    #[inline]
    pub(crate) unsafe fn write_plain(self, to: NonNull<u8>, buffers: u16) {
        let (zeroes, count) = (to.cast::<u64>(), (u32::from(buffers) << 16).to_le());
        // SAFETY: by the contract.
        unsafe {
            if self.len == 12 {
                let rest = to.add(8).cast::<u32>();
                // Most headers are equal, and drivers keep them on a cache line of their own: a
                // line that is not written stays in the driver's cache.
                if zeroes.read_unaligned() != 0 || rest.read_unaligned() != count {
                    zeroes.write_unaligned(0);
                    rest.write_unaligned(count);
                }
            } else {
                zeroes.write_unaligned(0);
                to.add(8).cast::<u16>().write_unaligned(0);
            }
        }
    }

    /// Like [`write`](Self::write), for a frame with an offload.
    ///
    /// # Safety
    /// As for `write`.
    #[cold]
    unsafe fn write_offload(self, to: NonNull<u8>, frame: &Frame<'_>, buffers: u16) -> bool {
        let Some(header) = self.of(frame) else { return false };
        // SAFETY: by the contract.
        unsafe {
            to.cast::<[u8; VIRTIO_NET_LEN]>().write_unaligned(header.bytes());
            if self.len == 12 {
                to.add(VIRTIO_NET_LEN).cast::<u16>().write_unaligned(buffers.to_le());
            }
        }
        true
    }
}

//! The virtio-net header in front of packets that the kernel gives and takes, at TAP devices and
//! packet sockets: what is left to do on them.

use dray_wire::ethernet::{ETHERNET_LEN, TAG_LEN};
use dray_wire::offload::{
    HEADERS_MAX, Layout, Offload, Offloads, Tunnel, VIRTIO_NET_LEN, VirtioNet,
};

use crate::Frame;
use crate::ends::headers;

/// Checks what was read, `len` bytes, a header and a frame; returns the frame's length, and what is
/// left to do on it. `None` if the frame cannot be passed on.
pub(crate) fn check(read: &mut [u8], len: usize, offloads: Offloads) -> Option<(usize, Offload)> {
    let (header, frame) = read.get_mut(..len)?.split_first_chunk_mut()?;
    let header = VirtioNet::read(*header).with_partial_checksum(frame);
    let offload = headers::accept(header, frame, offloads)?;
    Some((frame.len(), offload))
}

/// Returns the tunnel of a frame that was read, behind its header, and the offload of the inner
/// frame, if it has several segments. [`check`] refuses such a frame.
#[cold]
pub(crate) fn tunnel(read: &[u8], len: usize) -> Option<(Tunnel, Offload)> {
    let (header, frame) = read.get(..len)?.split_first_chunk()?;
    Tunnel::of(&VirtioNet::read(*header), frame)
}

/// Returns the header of a frame for a kernel that takes these offloads and frames of `frame_max`
/// bytes; `None` if it cannot do what is left to do on the frame.
pub(crate) fn header(
    frame: &Frame<'_>,
    offloads: Offloads,
    frame_max: usize,
) -> Option<[u8; VIRTIO_NET_LEN]> {
    let offload = frame.offload();
    if offload == Offload::None {
        return Some([0; VIRTIO_NET_LEN]);
    }
    let mut head = [0; HEADERS_MAX];
    let len = frame.copy_from(0, &mut head);
    let layout = Layout::of(&head[..len], frame.len())?;
    let longest = offload.segment().map_or(0, |len| layout.payload + usize::from(len.get()));
    (offloads.handle(offload, &layout) && longest <= frame_max + TAG_LEN)
        .then(|| VirtioNet::of(offload, &layout, frame.len()))?
        .map(|header| header.bytes())
}

/// Returns true if the kernel may take the frame: the length of its segments is checked when their
/// headers are [read](header). `offloads` is `None` if frames have no header.
pub(crate) fn accepts(frame: &Frame<'_>, offloads: Option<Offloads>, frame_max: usize) -> bool {
    let is_short = match frame.offload().segment() {
        Some(_) => offloads.is_some_and(|offloads| offloads.checksum),
        None => {
            let takes = offloads.is_some_and(|offloads| offloads.checksum);
            frame.fits(frame_max) && (takes || !frame.has_offload())
        }
    };
    frame.len() >= ETHERNET_LEN && is_short
}

//! Packets of several segments inside a UDP tunnel, as a kernel's VXLAN or GENEVE interface sends
//! them: each segment gets the outer headers. The virtio-net header describes the inner packet
//! alone.

use super::finish::{sent, set_v4};
use super::header::{Accept, VirtioNet};
use super::kind::{Offload, Offloads};
use super::layout::Upper;
use crate::checksum::Sum;
use crate::ip::{IPV6_LEN, protocol};

/// Length of the headers of UDP, and of VXLAN or GENEVE without options.
const UDP_LEN: usize = 8;
const TUNNEL_LEN: usize = 8;

/// Positions of the outer headers of a frame, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    is_v6: bool,
    network: usize,
    udp: usize,
    /// Start of the inner frame.
    inner: usize,
}

impl Tunnel {
    /// Finds the tunnel of a frame whose inner packet has several segments, and the offload of the
    /// inner frame.
    pub fn of(header: &VirtioNet, frame: &[u8]) -> Option<(Self, Offload)> {
        let outer = Upper::of(frame).filter(|outer| outer.end == frame.len())?;
        if outer.number != protocol::UDP {
            return None;
        }
        let (udp, message) = (outer.start, outer.start + UDP_LEN);
        let options = 4 * usize::from(frame.get(message)? & 0x3f);
        // Only one of them puts the inner checksum where the header says. GENEVE's flags are
        // VXLAN's number of words of options.
        [message + TUNNEL_LEN, message + TUNNEL_LEN + options].into_iter().find_map(|inner| {
            let csum_start = header.csum_start.checked_sub(u16::try_from(inner).ok()?)?;
            let header = VirtioNet { csum_start, hdr_len: 0, ..*header };
            let packet = frame.get(inner..)?;
            let Ok(Accept::Carry(offload)) = header.check(packet, packet.len(), Offloads::ALL)
            else {
                return None;
            };
            let tunnel = Self { is_v6: outer.is_v6, network: outer.network, udp, inner };
            offload.segment().map(|_| (tunnel, offload))
        })
    }

    /// Start of the inner frame.
    pub fn inner(&self) -> usize {
        self.inner
    }

    /// Returns the positions after `len` bytes were put in front of the outer headers.
    pub fn moved(self, len: usize) -> Self {
        let Self { is_v6, network, udp, inner } = self;
        Self { is_v6, network: network + len, udp: udp + len, inner: inner + len }
    }

    /// Sets the lengths and checksums of the outer headers of segment `index`, all of whose other
    /// bytes are in `frame`.
    ///
    /// # Panics
    /// If the frame ends in the outer headers.
    pub fn finish(&self, frame: &mut [u8], index: usize) {
        let Self { is_v6, network, udp, .. } = *self;
        let len = frame.len() - udp;
        if is_v6 {
            let payload = (frame.len() - network - IPV6_LEN) as u16;
            frame[network + 4..network + 6].copy_from_slice(&payload.to_be_bytes());
        } else {
            set_v4(&mut frame[network..udp], index, len);
        }
        frame[udp + 4..udp + 6].copy_from_slice(&(len as u16).to_be_bytes());
        let field = udp + 6..udp + 8;
        if frame[field.clone()] == [0, 0] {
            // The tunnel has no checksum.
            return;
        }
        frame[field.clone()].fill(0);
        let mut sum = Sum::default();
        let addresses = if is_v6 { 8..40 } else { 12..20 };
        sum.add(&frame[network..][addresses]);
        sum.add(&(len as u32).to_be_bytes());
        sum.add(&[0, protocol::UDP]);
        sum.add(&frame[udp..]);
        frame[field].copy_from_slice(&sent(sum.finish()));
    }
}

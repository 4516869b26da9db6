//! Kinds of offloads, and the kinds that one side of a port handles.

use std::num::NonZeroU16;

use super::layout::Layout;

/// Maximum number of segments of one frame: 64 KiB in segments of 8 bytes, the shortest that Linux
/// makes. The least MSS that it accepts is 48, of which TCP's options take up to 40.
pub const SEGMENTS_MAX: usize = 8192;

/// Work that is left to do on a frame before it can go over a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// No work is left.
    #[default]
    None,
    /// The checksum of TCP or UDP holds the sum of the pseudo-header only.
    Checksum,
    /// The checksum is partial, and the TCP payload is to be cut into segments of this many bytes.
    Tcp(NonZeroU16),
    /// As [`Tcp`](Self::Tcp), with the ECN flag of the virtio-net header: all segments but the
    /// first lose the flag CWR (RFC 3168, section 6.1.2).
    TcpEcn(NonZeroU16),
    /// As [`Tcp`](Self::Tcp), for UDP: each segment becomes a datagram.
    Udp(NonZeroU16),
}

impl Offload {
    /// Returns the maximum payload of a segment in bytes, if the frame has to be segmented.
    #[inline]
    pub fn segment(self) -> Option<NonZeroU16> {
        match self {
            Self::None | Self::Checksum => None,
            Self::Tcp(len) | Self::TcpEcn(len) | Self::Udp(len) => Some(len),
        }
    }
}

/// Set of offloads that one side of a port handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// [`Offload::Checksum`]. The others require it.
    pub checksum: bool,
    /// [`Offload::Tcp`] over IPv4.
    pub tcp4: bool,
    /// [`Offload::Tcp`] over IPv6.
    pub tcp6: bool,
    /// [`Offload::TcpEcn`], over those of IPv4 and IPv6 for which [`Offload::Tcp`] is handled.
    pub ecn: bool,
    /// [`Offload::Udp`] over IPv4.
    pub udp4: bool,
    /// [`Offload::Udp`] over IPv6.
    pub udp6: bool,
}

impl Offloads {
    /// No offload.
    pub const NONE: Self =
        Self { checksum: false, tcp4: false, tcp6: false, ecn: false, udp4: false, udp6: false };
    /// All offloads except those of UDP, which are newer.
    pub const TCP: Self = Self { checksum: true, tcp4: true, tcp6: true, ecn: true, ..Self::NONE };
    /// All offloads.
    pub const ALL: Self = Self { udp4: true, udp6: true, ..Self::TCP };

    /// Returns true if a frame with this offload is handled whatever its headers are.
    #[inline]
    pub fn always_handle(&self, offload: Offload) -> bool {
        let segments = match offload {
            Offload::None => return true,
            Offload::Checksum => true,
            Offload::Tcp(_) => self.tcp4 && self.tcp6,
            Offload::TcpEcn(_) => self.tcp4 && self.tcp6 && self.ecn,
            Offload::Udp(_) => self.udp4 && self.udp6,
        };
        self.checksum && segments
    }

    /// Returns true if a frame with headers like `layout` and this offload is handled.
    #[inline]
    pub fn handle(&self, offload: Offload, layout: &Layout) -> bool {
        let segments = match (offload, layout.is_v6) {
            (Offload::None, _) => return true,
            (Offload::Checksum, _) => true,
            (Offload::Tcp(_), false) => self.tcp4,
            (Offload::Tcp(_), true) => self.tcp6,
            (Offload::TcpEcn(_), false) => self.tcp4 && self.ecn,
            (Offload::TcpEcn(_), true) => self.tcp6 && self.ecn,
            (Offload::Udp(_), false) => self.udp4,
            (Offload::Udp(_), true) => self.udp6,
        };
        self.checksum && segments
    }
}

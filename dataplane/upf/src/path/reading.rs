//! Parsing of packets, at first in the copy of their beginning.

use dray_port::{Frame, Scratch};
use dray_wire::ethernet::ethertype;
use dray_wire::ip::{PORTS_LEN, Packet, Version};

/// Why a packet was not parsed.
pub(super) enum ParseError {
    /// The packet is invalid.
    Invalid,
    /// The headers extend beyond the copied bytes, into memory that a peer can write to,
    /// so what is checked may differ from what is transmitted. A copy of the whole packet has to be
    /// parsed.
    MayChange,
}

/// Parses the packet of `len` bytes at `at` in the frame. `look` has its first bytes, at least 60
/// unless it is shorter. If the headers extend beyond them, the whole frame is parsed.
#[inline(always)]
pub(super) fn parse<'f>(
    look: &'f [u8],
    len: usize,
    frame: &'f Frame<'_>,
    at: usize,
    scratch: &'f mut Scratch,
) -> Result<Packet, ParseError> {
    let mut bytes = look;
    let mut scratch = Some(scratch);
    // A loop, because the result of a second call would be passed through memory each time.
    loop {
        let packet = Packet::parse(bytes, len).map_err(|_| ParseError::Invalid)?;
        match scratch.take() {
            Some(scratch) if packet.is_cut() && look.len() < len => {
                if frame.may_change() {
                    return Err(ParseError::MayChange);
                }
                bytes = whole(frame, at, scratch);
            }
            _ => return Ok(packet),
        }
    }
}

/// Returns how many of a parsed packet's first `there` bytes have to leave exactly as they were
/// read, because decisions depend on them.
#[inline(always)]
pub(super) fn checked_len(packet: &Packet, there: usize) -> usize {
    (packet.header_len + PORTS_LEN).min(packet.len).min(there)
}

/// Returns a copy of a whole frame.
#[cold]
pub(super) fn copy_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut whole = vec![0; frame.len()];
    frame.copy_into(&mut whole);
    whole
}

#[cold]
fn whole<'f>(frame: &'f Frame<'_>, at: usize, scratch: &'f mut Scratch) -> &'f [u8] {
    &frame.bytes(scratch)[at..]
}

/// Returns the Ethernet type of an IP version.
#[inline(always)]
pub(super) fn ethertype(version: Version) -> u16 {
    match version {
        Version::V4 => ethertype::IPV4,
        Version::V6 => ethertype::IPV6,
    }
}

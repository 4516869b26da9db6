//! Writes pcapng (draft-ietf-opsawg-pcapng): one section, an interface for each port, a packet for
//! each frame, and statistics of the interfaces at the end.
//!
//! Blocks are appended to a buffer of the caller, so that a file never ends within one.

use std::time::Duration;

/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;

mod block {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const STATISTICS: u32 = 5;
    pub(super) const PACKET: u32 = 6;
}

/// Codes of options, which depend on the block.
mod option {
    pub(super) const COMMENT: u16 = 1;
    pub(super) const OPERATING_SYSTEM: u16 = 3;
    pub(super) const APPLICATION: u16 = 4;
    pub(super) const NAME: u16 = 2;
    pub(super) const RESOLUTION: u16 = 9;
    pub(super) const FILTER: u16 = 11;
    pub(super) const FLAGS: u16 = 2;
    pub(super) const RECEIVED: u16 = 4;
    pub(super) const DROPPED: u16 = 5;
}

/// A packet of one interface.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Number of its interface, in the order of [`interface`].
    pub interface: u32,
    /// Time since 1970.
    pub time: Duration,
    /// Length of the frame; there may be fewer bytes.
    pub len: u32,
    /// First bytes of the frame.
    pub bytes: &'a [u8],
    /// True if the interface received it; false if it transmitted it.
    pub is_inbound: bool,
    /// A comment; empty for none.
    pub comment: &'a str,
}

/// Appends a block.
#[inline]
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
}

/// Pads what was appended since `start`.
#[inline]
fn pad(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    out.extend_from_slice(&[0; 3][..len.next_multiple_of(4) - len]);
}

#[inline]
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX.into())];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    let start = out.len();
    out.extend_from_slice(value);
    pad(out, start);
}

/// Appends the end of the options.
#[inline]
fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}

#[inline]
fn time(out: &mut Vec<u8>, time: Duration) {
    let ns = time.as_nanos() as u64;
    out.extend_from_slice(&((ns >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&(ns as u32).to_le_bytes());
}

/// Appends the beginning of a file.
pub fn section(out: &mut Vec<u8>, application: &str) {
    block(out, block::SECTION, |out| {
        // The byte order, version 1.0, and a length that is not known.
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&[0xff; 8]);
        option(out, option::OPERATING_SYSTEM, b"Linux");
        option(out, option::APPLICATION, application.as_bytes());
        end(out);
    });
}

/// Appends an interface. `snaplen` is the maximum number of bytes of a packet, 0 if there is no
/// limit; `filter` is in the language of libpcap, and may be empty.
pub fn interface(out: &mut Vec<u8>, name: &str, snaplen: u32, filter: &str) {
    block(out, block::INTERFACE, |out| {
        out.extend_from_slice(&ETHERNET.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&snaplen.to_le_bytes());
        option(out, option::NAME, name.as_bytes());
        // Times are in units of 10^-9 s.
        option(out, option::RESOLUTION, &[9]);
        if !filter.is_empty() {
            // 0: a string of libpcap.
            option(out, option::FILTER, &[b"\0", filter.as_bytes()].concat());
        }
        end(out);
    });
}

/// Appends a packet.
#[inline]
pub fn packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    let Packet { interface, time: at, len, bytes, is_inbound, comment } = *packet;
    block(out, block::PACKET, |out| {
        out.extend_from_slice(&interface.to_le_bytes());
        time(out, at);
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        let start = out.len();
        out.extend_from_slice(bytes);
        pad(out, start);
        if !comment.is_empty() {
            option(out, option::COMMENT, comment.as_bytes());
        }
        let direction: u32 = if is_inbound { 1 } else { 2 };
        option(out, option::FLAGS, &direction.to_le_bytes());
        end(out);
    });
}

/// Appends the statistics of an interface at the time `at`: of `received` packets, `dropped` are
/// missing.
pub fn statistics(out: &mut Vec<u8>, interface: u32, at: Duration, received: u64, dropped: u64) {
    block(out, block::STATISTICS, |out| {
        out.extend_from_slice(&interface.to_le_bytes());
        time(out, at);
        option(out, option::RECEIVED, &received.to_le_bytes());
        option(out, option::DROPPED, &dropped.to_le_bytes());
        end(out);
    });
}

/// Returns the length of the whole blocks that `bytes` begins with.
pub fn whole_blocks(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(len) = bytes[whole..].get(4..8).and_then(|len| len.first_chunk()) {
        let len = u32::from_le_bytes(*len) as usize;
        if len == 0 || len > bytes.len() - whole {
            break;
        }
        whole += len;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the lengths of all blocks; returns their kinds and bodies.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let word = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().unwrap());
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let (kind, len) = (word(bytes), word(&bytes[4..]) as usize);
            assert_eq!((len % 4, word(&bytes[len - 4..]) as usize), (0, len));
            blocks.push((kind, &bytes[8..len - 4]));
            bytes = &bytes[len..];
        }
        blocks
    }

    #[test]
    fn file_has_padded_blocks_with_their_fields() {
        let mut out = Vec::new();
        section(&mut out, "dray");
        interface(&mut out, "a", 96, "udp");
        for (bytes, comment) in [(&b"12345"[..], "too_long"), (b"1234", "")] {
            let time = Duration::new(5, 7);
            let is_inbound = comment.is_empty();
            packet(&mut out, &Packet { interface: 0, time, len: 60, bytes, is_inbound, comment });
        }
        statistics(&mut out, 0, Duration::from_secs(1), 9, 2);
        let blocks = blocks(&out);
        let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 5]);
        let last = out.len() - blocks[4].1.len() - 12;
        for (len, whole) in [(out.len(), out.len()), (out.len() - 1, last), (last, last), (11, 0)] {
            assert_eq!(whole_blocks(&out[..len]), whole);
        }
        let ns: u64 = 5_000_000_007;
        let high = ((ns >> 32) as u32).to_le_bytes();
        let low = (ns as u32).to_le_bytes();
        let expected = [
            &[0; 4][..],
            &high,
            &low,
            &[5, 0, 0, 0, 60, 0, 0, 0],
            b"12345\0\0\0",
            &[1, 0, 8, 0],
            b"too_long",
            &[2, 0, 4, 0, 2, 0, 0, 0],
            &[0; 4],
        ];
        assert_eq!(blocks[2].1, expected.concat());
        assert_eq!(blocks[3].1[20..], *b"1234\x02\0\x04\0\x01\0\0\0\0\0\0\0");
        let name = [
            &[1, 0, 0, 0, 96, 0, 0, 0][..],
            &[2, 0, 1, 0, b'a', 0, 0, 0],
            &[9, 0, 1, 0, 9, 0, 0, 0],
        ]
        .concat();
        assert_eq!(blocks[1].1[..24], name);
        assert_eq!(blocks[1].1[24..], *b"\x0b\0\x04\0\0udp\0\0\0\0");
    }
}

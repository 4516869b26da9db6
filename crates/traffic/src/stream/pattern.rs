//! What flows in a stream: a head that tells which stream it is, and then bytes that follow from
//! their place in it, so that a receiver knows what must come without having seen anything else.

/// The first bytes of a stream: a word, and the stream's number as a big-endian integer.
pub(super) const HEAD_LEN: usize = 16;
const WORD: [u8; 8] = *b"dray 1\r\n";

/// The pattern's length. It is prime, so no page, segment or buffer that goes astray comes to lie
/// where its bytes belong.
const PERIOD: usize = 65_521;
/// By how much the patterns of neighbouring streams are shifted.
const SHIFT: usize = 7919;

/// Of so many bytes a receiver looks at [`LOOK`] where it does not look at all of them: a page. What
/// the kernel passes on consists of pages, or of segments that are no longer than three.
const STRIDE: usize = 4096;
const LOOK: usize = 64;

/// The head of stream `number`.
pub(super) fn head(number: u16) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&WORD);
    head[8..].copy_from_slice(&u64::from(number).to_be_bytes());
    head
}

/// The number in a head; `None` where it is not one of ours.
pub(super) fn number(head: &[u8; HEAD_LEN]) -> Option<u16> {
    let (word, number) = head.split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    (*word == WORD).then(|| u16::try_from(number).ok())?
}

/// The bytes behind the head, of every stream.
pub(super) struct Pattern {
    /// The period, and again as much of it as one call moves.
    bytes: Vec<u8>,
    call_max: usize,
}

impl Pattern {
    /// For calls of at most `call_max` bytes.
    pub(super) fn new(call_max: usize) -> Self {
        // A generator of George Marsaglia's (xorshift64): any bytes without a short period do.
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        let period: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .take(PERIOD)
        .collect();
        let bytes = period.iter().copied().cycle().take(PERIOD + call_max).collect();
        Self { bytes, call_max }
    }

    /// What lies in stream `number` from `offset` on: as many bytes as one call moves.
    #[inline]
    pub(super) fn at(&self, number: u16, offset: u64) -> &[u8] {
        let shift = u64::from(number) * SHIFT as u64;
        let start = (offset.wrapping_add(shift) % PERIOD as u64) as usize;
        &self.bytes[start..start + self.call_max]
    }

    /// Whether `bytes` are those of stream `number` from `offset` on; looks at `whole` of them, or at
    /// some of every page and at the last ones.
    pub(super) fn matches(&self, number: u16, offset: u64, bytes: &[u8], whole: bool) -> bool {
        let expected = &self.at(number, offset)[..bytes.len()];
        if whole || bytes.len() <= 2 * LOOK {
            return bytes == expected;
        }
        let last = bytes.len() - LOOK;
        let places = (0..last).step_by(STRIDE).chain([last]);
        { places }.all(|at| bytes[at..at + LOOK] == expected[at..at + LOOK])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_its_stream_and_nothing_else_does() {
        assert_eq!(number(&head(513)), Some(513));
        for at in 0..HEAD_LEN - 2 {
            let mut wrong = head(513);
            wrong[at] ^= 0x20;
            assert_eq!(number(&wrong), None, "byte {at}");
        }
        assert_eq!(number(&[0; HEAD_LEN]), None);
    }

    #[test]
    fn bytes_follow_from_their_place() {
        let pattern = Pattern::new(10_000);
        let far = 123_456_789_012;
        let (mut pieces, mut at) = (Vec::new(), far);
        for len in [1, 999, 4096, 4904] {
            pieces.extend_from_slice(&pattern.at(7, at)[..len]);
            at += len as u64;
        }
        assert_eq!(pieces, pattern.at(7, far));
        for whole in [false, true] {
            assert!(pattern.matches(7, far, &pieces, whole));
            for (stream, offset) in [(6, far), (7, far + 1), (7, far + 4096), (7, far - 65_536)] {
                assert!(!pattern.matches(stream, offset, &pieces, whole), "{stream} {offset}");
            }
        }
    }

    #[test]
    fn a_piece_that_is_lost_doubled_or_damaged_is_seen() {
        let pattern = Pattern::new(20_000);
        let good = pattern.at(0, 0).to_vec();
        let spoilt: [fn(&mut Vec<u8>); 4] = [
            |bytes| drop(bytes.drain(1448..2896)),
            |bytes| bytes.splice(8192..8192, vec![0; 4096]).for_each(drop),
            |bytes| bytes[12_000..16_500].fill(0),
            |bytes| *bytes.last_mut().unwrap() ^= 1,
        ];
        for (case, spoil) in spoilt.iter().enumerate() {
            let mut bytes = good.clone();
            spoil(&mut bytes);
            bytes.truncate(20_000);
            assert!(!pattern.matches(0, 0, &bytes, false), "{case}");
            assert!(!pattern.matches(0, 0, &bytes, true), "{case}");
        }
        let mut one = good;
        one[5000] ^= 1;
        assert!(!pattern.matches(0, 0, &one, true), "whole means whole");
    }
}

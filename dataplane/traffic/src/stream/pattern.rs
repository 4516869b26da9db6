//! Contents of a stream: a head that identifies it, then bytes that depend only on their offset, so
//! that a receiver can check any part without having seen the rest.

/// Length of the head: a word, and the stream's number as a big-endian integer.
pub(super) const HEAD_LEN: usize = 16;
const WORD: [u8; 8] = *b"dray 1\r\n";

/// Length of the pattern. It is prime, so a page, segment or buffer that goes astray never lies
/// where its bytes belong.
const PERIOD: usize = 65_521;
/// Shift between the patterns of neighbouring streams.
const SHIFT: usize = 7919;

/// Distance at which a receiver checks [`LOOK`] bytes if it does not check all of them: a page. The
/// kernel passes on pages, or segments of at most three pages.
const STRIDE: usize = 4096;
const LOOK: usize = 64;

/// Returns the head of stream `number`.
pub(super) fn head(number: u16) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&WORD);
    head[8..].copy_from_slice(&u64::from(number).to_be_bytes());
    head
}

/// Returns the number in a head; `None` if the head is not that of a test stream.
pub(super) fn number(head: &[u8; HEAD_LEN]) -> Option<u16> {
    let (word, number) = head.split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    (*word == WORD).then(|| u16::try_from(number).ok())?
}

/// Bytes after the head, of every stream.
pub(super) struct Pattern {
    /// The period, followed by as much of it again as one call moves.
    bytes: Vec<u8>,
    call_max: usize,
}

impl Pattern {
    /// Creates the pattern for calls of at most `call_max` bytes.
    pub(super) fn new(call_max: usize) -> Self {
        // George Marsaglia's xorshift64: any bytes without a short period will do.
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

    /// Returns the bytes of stream `number` from `offset` on: as many as one call moves.
    #[inline]
    pub(super) fn at(&self, number: u16, offset: u64) -> &[u8] {
        let shift = u64::from(number) * SHIFT as u64;
        let start = (offset.wrapping_add(shift) % PERIOD as u64) as usize;
        &self.bytes[start..start + self.call_max]
    }

    /// Returns true if `bytes` are those of stream `number` from `offset` on. Checks all of them if
    /// `whole`, else some of every page and the last ones.
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
    fn only_valid_heads_give_stream_number() {
        assert_eq!(number(&head(513)), Some(513));
        for at in 0..HEAD_LEN - 2 {
            let mut wrong = head(513);
            wrong[at] ^= 0x20;
            assert_eq!(number(&wrong), None, "byte {at}");
        }
        assert_eq!(number(&[0; HEAD_LEN]), None);
    }

    #[test]
    fn pattern_depends_on_stream_offset() {
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
    fn lost_doubled_or_damaged_pieces_are_detected() {
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

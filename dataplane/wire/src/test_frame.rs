//! The test frame: a UDP datagram whose payload holds its stream, its number in that stream, and
//! the time when it was sent.
//!
//! ```text
//!  0       2       4       6                       14                      22
//!  +-------+-------+-------+-----------------------+-----------------------+------- - -
//!  | check | magic | stream| sequence              | ticks                 | pattern
//!  +-------+-------+-------+-----------------------+-----------------------+------- - -
//! ```
//!
//! All fields are big-endian. `check` is the Internet checksum of the other 20 bytes. The header is
//! exactly the payload of the smallest frame, 64 bytes; longer frames continue with a fixed
//! pattern. `ticks` is the sender's time-stamp counter, meaningful on the same host only.

use std::array::from_fn;

use crate::checksum;
use crate::ethernet::{ETHERNET_LEN, FRAME_MAX};
use crate::flow::{self, Flow, HEADERS_LEN};
use crate::ip::IPV4_LEN;

/// Length of the test header, in bytes.
pub const TEST_HEADER_LEN: usize = 22;
/// The smallest frame, in bytes.
pub const FRAME_MIN: usize = HEADERS_LEN + TEST_HEADER_LEN;

const MAGIC: u16 = 0xd7a1;
const PATTERN_LEN: usize = FRAME_MAX - FRAME_MIN;

/// Bytes after the test header. The period, 251, is prime, so a payload that was shifted, cut or
/// filled from another place does not match.
static PATTERN: [u8; PATTERN_LEN] = {
    let mut pattern = [0; PATTERN_LEN];
    let mut i = 0;
    while i < PATTERN_LEN {
        pattern[i] = (i % 251) as u8;
        i += 1;
    }
    pattern
};

/// Data that a sender writes into each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Stream of the frame.
    pub stream: u16,
    /// Number of the frame in its stream, counted from zero.
    pub sequence: u64,
    /// The sender's time-stamp counter when the frame's burst was due.
    pub ticks: u64,
}

/// Result of reading a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An intact test frame.
    Intact(Stamp),
    /// A damaged test frame; its stream, if only the pattern is damaged.
    Corrupt(Option<u16>),
    /// Not a test frame, but other traffic on the link.
    Foreign,
}

/// Builds a frame of `size` bytes with headers and pattern in place, to be [`stamp`]ed before each
/// use.
///
/// # Panics
/// If `size` is outside [`FRAME_MIN`]`..=`[`FRAME_MAX`].
pub fn build(flow: &Flow, size: usize) -> Vec<u8> {
    assert!((FRAME_MIN..=FRAME_MAX).contains(&size), "frame size {size}");
    let mut frame = vec![0; size];
    flow::write(flow, size, frame.first_chunk_mut().expect("longer than the headers"));
    frame[FRAME_MIN..].copy_from_slice(&PATTERN[..size - FRAME_MIN]);
    stamp(&mut frame, Stamp { stream: 0, sequence: 0, ticks: 0 });
    frame
}

/// Writes `stamp` into a frame made by [`build`].
///
/// # Panics
/// If `frame` is shorter than [`FRAME_MIN`].
#[inline]
pub fn stamp(frame: &mut [u8], stamp: Stamp) {
    let header: &mut [u8; TEST_HEADER_LEN] =
        frame[HEADERS_LEN..].first_chunk_mut().expect("a frame holds a test header");
    header[2..4].copy_from_slice(&MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&stamp.stream.to_be_bytes());
    header[6..14].copy_from_slice(&stamp.sequence.to_be_bytes());
    header[14..22].copy_from_slice(&stamp.ticks.to_be_bytes());
    let Stamp { stream, sequence, ticks } = stamp;
    let first = u64::from(MAGIC) << 16 | u64::from(stream);
    let check = checksum::internet_of_words([first, sequence, ticks]);
    header[..2].copy_from_slice(&check.to_be_bytes());
}

/// Reads a frame: header, and every byte of the pattern.
#[inline]
pub fn read(frame: &[u8]) -> Verdict {
    let Some(head) = frame.first_chunk() else { return Verdict::Foreign };
    let verdict = read_head(head, frame.len());
    let Verdict::Intact(stamp) = verdict else { return verdict };
    let pattern = &frame[FRAME_MIN..ETHERNET_LEN + ip_len(head)];
    // Comparing two empty slices is not free: `memcmp` then loads with an empty mask, for which
    // processors take a slow path if the kernel has marked the page as not recently accessed, and
    // such a load never marks it as accessed again. (Observed: 80 ns per frame, permanently, from
    // some minute on.)
    if pattern.is_empty() || PATTERN.get(..pattern.len()) == Some(pattern) {
        verdict
    } else {
        Verdict::Corrupt(Some(stamp.stream))
    }
}

/// Returns the length of the IPv4 packet, from bytes 16 and 17.
#[inline]
fn ip_len(head: &[u8; FRAME_MIN]) -> usize {
    u16::from_be_bytes([head[16], head[17]]).into()
}

/// Reads the first bytes of a frame of `len` bytes, all but its pattern. Returns what [`read`]
/// returns for a frame whose pattern is intact.
///
/// Reads eight words, because a receiver has 20 ns for a frame: if a head was copied with moves of
/// one size and is read with another, the load has to wait for the store.
#[inline]
pub fn read_head(head: &[u8; FRAME_MIN], len: usize) -> Verdict {
    let word = |at| u64::from_be(word_of(head, at));
    let (of_ip, of_udp) = (word(2), word(4));
    // Bytes 12 to 15: IPv4, and no options.
    let is_ip = word(1) >> 8 & 0xff_ffff == 0x08_0045;
    // Bytes 20, 21 and 23: not a fragment, UDP.
    let is_udp = of_ip & 0x3fff_00ff == 0x11;
    // Bytes 38 and 39.
    let (ip_len, udp_len) = (ip_len(head), of_udp as usize & 0xffff);
    let fits = udp_len + IPV4_LEN == ip_len && ip_len + ETHERNET_LEN <= len;
    let [rest, sequence, ticks] = [word(5), word(6), word(7)];
    if !(is_ip && is_udp && fits)
        || ip_len + ETHERNET_LEN < FRAME_MIN
        || rest >> 16 & 0xffff != u64::from(MAGIC)
    {
        return Verdict::Foreign;
    }
    // The test header follows the checksum of UDP.
    if checksum::internet_of_words([rest & 0xffff_ffff_ffff, sequence, ticks]) != 0 {
        return Verdict::Corrupt(None);
    }
    Verdict::Intact(Stamp { stream: rest as u16, sequence, ticks })
}

/// Frames of one stream and one length that were due at the same time and follow one another: their
/// heads differ only in their numbers and in the checksums of those. Comparing a head with what its
/// sender writes next takes a fraction of the time of [`read_head`]. The default is an empty burst.
#[derive(Clone, Copy, Debug, Default)]
pub struct Burst {
    /// The first head as words, in memory byte order.
    words: Words,
    first: Stamp,
    /// Length of each frame.
    len: usize,
    count: u64,
    /// Maximum count: until the checksum of the next frame is not one less.
    most: u64,
}

impl Burst {
    /// Creates the burst that begins with the intact head of a frame of `len` bytes, for which
    /// [`read_head`] returned `first`.
    #[inline]
    pub fn from(head: &[u8; FRAME_MIN], len: usize, first: Stamp) -> Self {
        let check = u16::from_be_bytes([head[HEADERS_LEN], head[HEADERS_LEN + 1]]);
        // A number greater by one decreases the checksum by one; 0 is followed by 0xfffe. The
        // greatest number has no successor.
        let most = u64::from(check).min(u64::MAX - first.sequence) + 1;
        Self { words: words_of(head), first, len, count: 1, most }
    }

    /// Counts the frame of `len` bytes that begins with `head`, given as words in memory byte
    /// order, if it is the next one of the burst; otherwise returns `false`. [`read_head`] finds
    /// every counted frame intact.
    #[inline(always)]
    pub fn take(&mut self, head: &Words, len: usize) -> bool {
        const CHECK: u32 = 32;
        let mut expected = self.words;
        expected[5] = u64::from_be(expected[5]).wrapping_sub(self.count << CHECK).to_be();
        expected[6] = self.first.sequence.wrapping_add(self.count).to_be();
        if self.count == self.most || len != self.len || !is_equal(head, &expected) {
            return false;
        }
        self.count += 1;
        true
    }

    /// Returns the number of frames.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the stamp of the first frame.
    pub fn first(&self) -> Stamp {
        self.first
    }

    /// Returns the length of each frame, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "len is the length of a frame, not a count")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// A head as words, in memory byte order.
pub type Words = [u64; FRAME_MIN / 8];

/// Returns the words of a head.
#[inline(always)]
pub fn words_of(head: &[u8; FRAME_MIN]) -> Words {
    from_fn(|at| word_of(head, at))
}

/// Returns true if a head is as expected. Left to itself the compiler compares words that were just
/// computed one by one, which takes half as long again as two at a time: a frame is received every
/// 30 ns.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(unsafe_code, reason = "for two words at a time")]
fn is_equal(head: &Words, expected: &Words) -> bool {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_setzero_si128,
        _mm_xor_si128,
    };
    // SAFETY: all x86-64 processors have SSE2.
    unsafe {
        let differs = |at: usize| {
            let pair = |words: &Words| _mm_set_epi64x(words[at + 1] as i64, words[at] as i64);
            _mm_xor_si128(pair(head), pair(expected))
        };
        let (first, last) =
            (_mm_or_si128(differs(0), differs(2)), _mm_or_si128(differs(4), differs(6)));
        let same = _mm_cmpeq_epi8(_mm_or_si128(first, last), _mm_setzero_si128());
        _mm_movemask_epi8(same) == 0xffff
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn is_equal(head: &Words, expected: &Words) -> bool {
    head == expected
}

/// Returns a word of a head, in memory byte order.
#[inline(always)]
fn word_of(head: &[u8; FRAME_MIN], at: usize) -> u64 {
    u64::from_ne_bytes(*head[8 * at..].first_chunk().expect("eight words"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn any_stamp()(stream: u16, sequence: u64, ticks: u64) -> Stamp {
            Stamp { stream, sequence, ticks }
        }
    }

    proptest! {
        #[test]
        fn stamped_frame_round_trips(expected in any_stamp(), size in FRAME_MIN..=FRAME_MAX) {
            let mut frame = build(&Flow::default(), size);
            stamp(&mut frame, expected);
            prop_assert_eq!(read(&frame), Verdict::Intact(expected));
        }

        /// A single flipped bit after the headers is always detected.
        #[test]
        fn every_flipped_bit_is_detected(expected in any_stamp(), size in FRAME_MIN..2000, bit in 0usize..2000 * 8) {
            let mut frame = build(&Flow::default(), size);
            stamp(&mut frame, expected);
            let bit = HEADERS_LEN * 8 + bit % ((size - HEADERS_LEN) * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!matches!(read(&frame), Verdict::Intact(_)));
        }

        /// `udp_payload` finds a payload in every test frame.
        #[test]
        fn udp_payload_agrees_with_test_frame(expected in any_stamp(), size in FRAME_MIN..2000, cut in 0usize..8, byte in 0..HEADERS_LEN, mask: u8) {
            let mut frame = build(&Flow::default(), size);
            stamp(&mut frame, expected);
            frame[byte] ^= mask;
            let frame = &frame[..(size - cut).max(FRAME_MIN)];
            let is_found = flow::udp_payload(frame).is_some_and(|payload| payload.len() >= TEST_HEADER_LEN);
            prop_assert_eq!(read(frame) != Verdict::Foreign, is_found);
        }

        /// A burst takes exactly the heads that its sender writes.
        #[test]
        fn burst_takes_exactly_the_sent_heads(first in any_stamp(), at_end: bool, bit in 0..FRAME_MIN * 8, which in 1u64..200) {
            let frame = build(&Flow::default(), FRAME_MIN);
            let mut head: [u8; FRAME_MIN] = frame.try_into().unwrap();
            let first = if at_end { Stamp { sequence: u64::MAX - 100, ..first } } else { first };
            let mut burst = Burst::default();
            let mut begun = 0;
            for nth in 0..200 {
                let sent = Stamp { sequence: first.sequence.wrapping_add(nth), ..first };
                stamp(&mut head, sent);
                if nth == which {
                    let mut wrong = head;
                    wrong[bit / 8] ^= 1 << (bit % 8);
                    prop_assert!(!burst.take(&words_of(&wrong), FRAME_MIN));
                    prop_assert!(!burst.take(&words_of(&head), FRAME_MIN + 1));
                    let other = Stamp { sequence: sent.sequence.wrapping_add(1), ..sent };
                    stamp(&mut wrong, other);
                    prop_assert!(!burst.take(&words_of(&wrong), FRAME_MIN));
                }
                if !burst.take(&words_of(&head), FRAME_MIN) {
                    burst = Burst::from(&head, FRAME_MIN, sent);
                    begun += 1;
                }
                let last = burst.first().sequence.wrapping_add(burst.count() - 1);
                prop_assert_eq!(last, sent.sequence);
            }
            // The checksum wraps around once in 65,535 frames, and numbers do at the end.
            prop_assert!((1..=2 + u32::from(at_end)).contains(&begun), "{begun}");
        }

        /// Every frame that a burst takes is intact, whatever the burst began with.
        #[test]
        fn frames_taken_by_a_burst_are_intact(first in any_stamp(), byte in 0..FRAME_MIN, mask: u8, step in 0u64..3) {
            let frame = build(&Flow::default(), FRAME_MIN);
            let mut head: [u8; FRAME_MIN] = frame.try_into().unwrap();
            stamp(&mut head, first);
            head[byte] ^= mask;
            let Verdict::Intact(read) = read_head(&head, FRAME_MIN) else { return Ok(()) };
            let mut burst = Burst::from(&head, FRAME_MIN, read);
            let next = Stamp { sequence: read.sequence.wrapping_add(step), ..read };
            stamp(&mut head, next);
            if burst.take(&words_of(&head), FRAME_MIN) {
                prop_assert_eq!(read_head(&head, FRAME_MIN), Verdict::Intact(next));
                prop_assert_eq!(step, 1);
            }
        }

        #[test]
        fn arbitrary_bytes_are_not_test_frames(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(read(&bytes), Verdict::Intact(_)));
        }
    }

    #[test]
    fn truncated_frame_is_not_intact() {
        let frame = build(&Flow::default(), 1500);
        for len in 0..frame.len() {
            assert!(!matches!(read(&frame[..len]), Verdict::Intact(_)), "{len}");
        }
    }

    #[test]
    fn damaged_pattern_keeps_stream_number() {
        let mut frame = build(&Flow::default(), 100);
        stamp(&mut frame, Stamp { stream: 7, sequence: 3, ticks: 1 });
        frame[99] ^= 1;
        assert_eq!(read(&frame), Verdict::Corrupt(Some(7)));
        frame[FRAME_MIN - 1] ^= 1;
        assert_eq!(read(&frame), Verdict::Corrupt(None));
    }

    #[test]
    fn smallest_frame_is_64_bytes() {
        assert_eq!(FRAME_MIN, 64);
    }
}

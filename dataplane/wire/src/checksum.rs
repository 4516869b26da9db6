//! The Internet checksum (RFC 1071), and that of SCTP.

/// Returns the ones' complement of the ones' complement sum of `bytes` as big-endian 16-bit words;
/// an odd last byte is padded with zero.
///
/// Over a header whose checksum field is zero this is the value for that field; over a header with
/// its checksum in place it is zero if the header is intact.
#[inline]
pub fn internet(bytes: &[u8]) -> u16 {
    // The sum depends neither on the byte order nor on the number of words added at a time: only
    // its own two bytes come out in the order in which the words were read (section 2 of the RFC).
    let mut words = bytes.chunks_exact(4);
    let mut sum: u64 = 0;
    for word in words.by_ref() {
        sum += u64::from(u32::from_ne_bytes(word.try_into().expect("4 bytes")));
    }
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    sum += u64::from(u32::from_ne_bytes(last));
    u16::from_be(!fold(sum))
}

/// Like [`internet`], for a length known at compile time, a multiple of four.
#[inline(always)]
pub fn internet_of<const N: usize>(bytes: &[u8; N]) -> u16 {
    const { assert!(N.is_multiple_of(4)) };
    let words = bytes.chunks_exact(4);
    let words = words.map(|word| u64::from(u32::from_ne_bytes(word.try_into().expect("4 bytes"))));
    u16::from_be(!fold_words(words.sum()))
}

/// Like [`internet`], over the big-endian bytes of `words`: for fields that are in registers and
/// have just been written. Reading them back in other sizes than they were written with is slow.
#[inline(always)]
pub fn internet_of_words<const N: usize>(words: [u64; N]) -> u16 {
    const { assert!(N < 1 << 15) };
    !fold_words(words.iter().map(|word| (word >> 32) + (word & 0xffff_ffff)).sum())
}

/// Checksum of data in several pieces. Each piece but the last must have an even length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds a piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 += u64::from(!internet(bytes));
    }

    /// Returns the ones' complement of the sum.
    pub fn finish(self) -> u16 {
        !fold(self.0)
    }
}

/// Returns the CRC32c of `bytes` (RFC 9260, appendix A), which SCTP sends in little-endian order.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let next = |crc: u32, byte: &u8| CRC32C[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    !bytes.iter().fold(!0, next)
}

/// Remainders of each byte, bits in reverse order.
const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Like [`fold`], for a sum of fewer than 65,536 words of 32 bits, without a loop.
#[inline(always)]
fn fold_words(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[inline]
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn crc32c_of_known_vectors() {
        // RFC 3720, section B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn sum_of_words_equals_sum_of_bytes(words: [u64; 9], ones: bool) {
            let words = if ones { [u64::MAX; 9] } else { words };
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            prop_assert_eq!(internet_of_words(words), internet(&bytes));
        }

        #[test]
        fn fixed_length_sum_equals_general_sum(bytes: [u8; 20], ones: bool) {
            let bytes = if ones { bytes.map(|_| 0xff) } else { bytes };
            prop_assert_eq!(internet_of(&bytes), internet(&bytes));
        }
    }

    proptest! {
        #[test]
        fn sum_of_pieces_equals_sum_of_whole(bytes in prop::collection::vec(any::<u8>(), 0..60), at in 0usize..60) {
            let (first, second) = bytes.split_at((at & !1).min(bytes.len() & !1));
            let mut sum = Sum::default();
            sum.add(first);
            sum.add(second);
            prop_assert_eq!(sum.finish(), internet(&bytes));
        }
    }

    #[test]
    fn example_of_rfc_1071() {
        // Section 3: the sum of these words is 0xddf2.
        assert_eq!(internet(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    proptest! {
        #[test]
        fn checksummed_block_sums_to_zero(mut block in prop::collection::vec(any::<u8>(), 2..64)) {
            block[0] = 0;
            block[1] = 0;
            let sum = internet(&block);
            block[..2].copy_from_slice(&sum.to_be_bytes());
            prop_assert_eq!(internet(&block), 0);
        }
    }
}

//! The Internet checksum (RFC 1071).

/// The ones' complement of the ones' complement sum of `bytes` as big-endian 16-bit words; an odd
/// last byte is padded with zero.
///
/// Over a header whose checksum field is zero this is the value for that field; over a header with
/// its checksum in place it is zero when the header is intact.
pub fn internet(bytes: &[u8]) -> u16 {
    let mut words = bytes.chunks_exact(2);
    let mut sum: u64 = words.by_ref().map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn example_of_rfc_1071() {
        // Section 3: the sum of these words is 0xddf2.
        assert_eq!(internet(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    proptest! {
        #[test]
        fn a_checksummed_block_sums_to_zero(mut block in prop::collection::vec(any::<u8>(), 2..64)) {
            block[0] = 0;
            block[1] = 0;
            let sum = internet(&block);
            block[..2].copy_from_slice(&sum.to_be_bytes());
            prop_assert_eq!(internet(&block), 0);
        }
    }
}

//! UDP headers (RFC 768).

/// Length of the header, in bytes.
pub const UDP_LEN: usize = 8;

/// Contents of a UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Number of bytes after the header.
    pub payload_len: usize,
}

impl Udp {
    /// Parses the header at the start of `bytes`, of a datagram that has at most `available` bytes;
    /// `None` if its length is invalid. The checksum is not verified.
    #[inline]
    pub fn parse(bytes: &[u8], available: usize) -> Option<Self> {
        let &[a, b, c, d, e, f, ..] = bytes.first_chunk::<UDP_LEN>()?;
        let len = usize::from(u16::from_be_bytes([e, f]));
        (UDP_LEN <= len && len <= available).then(|| Self {
            src_port: u16::from_be_bytes([a, b]),
            dst_port: u16::from_be_bytes([c, d]),
            payload_len: len - UDP_LEN,
        })
    }

    /// Writes the header without a checksum.
    ///
    /// # Panics
    /// If the datagram is longer than 65,535 bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8; UDP_LEN]) {
        let len = u16::try_from(UDP_LEN + self.payload_len).expect("a length of 16 bits");
        let words = u64::from(self.src_port) << 48 | u64::from(self.dst_port) << 32;
        out.copy_from_slice(&(words | u64::from(len) << 16).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsing_agrees_with_etherparse(bytes: [u8; UDP_LEN], available in 0usize..66_000) {
            let theirs = etherparse::UdpHeader::from_slice(&bytes).unwrap().0;
            let len = usize::from(theirs.length);
            match Udp::parse(&bytes, available) {
                Some(udp) => {
                    let ports = (theirs.source_port, theirs.destination_port);
                    prop_assert_eq!((udp.src_port, udp.dst_port), ports);
                    prop_assert_eq!(udp.payload_len + UDP_LEN, len);
                    let mut again = [0; UDP_LEN];
                    udp.write(&mut again);
                    prop_assert_eq!(&again[..6], &bytes[..6]);
                }
                None => prop_assert!(len < UDP_LEN || len > available),
            }
            prop_assert_eq!(Udp::parse(&bytes[1..], available), None);
        }
    }
}

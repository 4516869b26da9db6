//! VXLAN (RFC 7348): an Ethernet frame in a UDP datagram, behind 8 bytes.
//!
//! ```text
//!  0        1                 4                 7        8
//!  +--------+-----------------+-----------------+--------+----------------
//!  | 0x08   | reserved, 0     | VNI             | 0      | Ethernet frame
//!  +--------+-----------------+-----------------+--------+----------------
//! ```

use crate::ethernet::ETHERNET_LEN;

/// Length of the header, in bytes.
pub const VXLAN_LEN: usize = 8;
/// UDP port assigned to VXLAN.
pub const VXLAN_PORT: u16 = 4789;
/// The largest VXLAN network identifier (24 bits).
pub const VNI_MAX: u32 = (1 << 24) - 1;

/// The flag I: the VNI is valid. No other flag is defined.
const VNI_IS_VALID: u8 = 0x08;

/// Returns the header of a network's frames.
///
/// # Panics
/// If `vni` exceeds [`VNI_MAX`].
pub fn header(vni: u32) -> [u8; VXLAN_LEN] {
    assert!(vni <= VNI_MAX, "VNI {vni}");
    let [_, a, b, c] = vni.to_be_bytes();
    [VNI_IS_VALID, 0, 0, 0, a, b, c, 0]
}

/// Reason for which a datagram does not carry a frame of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is shorter than the header and the Ethernet header of a frame.
    Short,
    /// Flags other than I alone are set, or reserved bits: it is of an extension (group policy,
    /// GPE, remote checksum offload), or no VXLAN at all. Linux drops these, too.
    Flags,
    /// It is of another network.
    OtherNetwork,
}

/// Returns the frame in `datagram` of the network whose [`header`] this is.
#[inline]
pub fn frame<'d>(datagram: &'d [u8], header: &[u8; VXLAN_LEN]) -> Result<&'d [u8], Unusable> {
    match datagram.split_first_chunk() {
        Some((first, frame)) if first == header && frame.len() >= ETHERNET_LEN => Ok(frame),
        _ => Err(unusable(datagram)),
    }
}

#[cold]
fn unusable(datagram: &[u8]) -> Unusable {
    if datagram.len() < VXLAN_LEN + ETHERNET_LEN {
        return Unusable::Short;
    }
    match datagram {
        [VNI_IS_VALID, 0, 0, 0, _, _, _, 0, ..] => Unusable::OtherNetwork,
        _ => Unusable::Flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unusable_datagrams_are_told_apart() {
        let valid = [&header(0x01_0203)[..], &[7; 14]].concat();
        assert_eq!(valid[..8], [8, 0, 0, 0, 1, 2, 3, 0]);
        let read = |datagram: &[u8]| frame(datagram, &header(0x01_0203)).map(<[u8]>::to_vec);
        assert_eq!(read(&valid), Ok(vec![7; 14]));
        for len in 0..valid.len() {
            assert_eq!(read(&valid[..len]), Err(Unusable::Short), "{len}");
        }
        for (at, byte, expected) in [
            (0, 0x00, Unusable::Flags),
            (0, 0x0c, Unusable::Flags),
            (0, 0x88, Unusable::Flags),
            (2, 1, Unusable::Flags),
            (7, 1, Unusable::Flags),
            (4, 0, Unusable::OtherNetwork),
            (6, 4, Unusable::OtherNetwork),
        ] {
            let mut changed = valid.clone();
            changed[at] = byte;
            assert_eq!(read(&changed), Err(expected), "{at} {byte}");
        }
    }

    proptest! {
        #[test]
        fn only_frames_behind_the_header_are_returned(
            vni in 0..=VNI_MAX,
            datagram in proptest::collection::vec(any::<u8>(), 0..40),
            prefixed: bool,
        ) {
            let datagram = match prefixed {
                true => [&header(vni)[..], &datagram].concat(),
                false => datagram,
            };
            match frame(&datagram, &header(vni)) {
                Ok(frame) => {
                    prop_assert!(frame.len() >= ETHERNET_LEN);
                    prop_assert_eq!([&header(vni)[..], frame].concat(), datagram);
                }
                Err(Unusable::Short) => prop_assert!(datagram.len() < VXLAN_LEN + ETHERNET_LEN),
                Err(_) => prop_assert!(!datagram.starts_with(&header(vni))),
            }
        }
    }
}

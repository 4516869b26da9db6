//! A memif server against a client that writes anything at any time.

use dray_ring::memif::{Posted, ServerRing};

use crate::bytes::Bytes;
use crate::memif::{FLAGS, HEAD, Ring, TAIL};

const COOKIE: u32 = 0x3e3_1f20;

/// Writes to a place in the ring, mostly something plausible; the bytes decide where and what.
/// `head` is the index that the client should have.
fn disturb(ring: &Ring, bytes: &mut Bytes<'_>, head: u64) {
    match bytes.byte() % 8 {
        0 => {
            let at = bytes.u32() as usize % (ring.len() - 8);
            ring.write(at, bytes.u64().to_ne_bytes());
        }
        1 => ring.write(HEAD, bytes.u16().to_ne_bytes()),
        2..6 => {
            let head = (head as u16).wrapping_add(u16::from(bytes.byte() % 8)).wrapping_sub(1);
            ring.write(HEAD, head.to_ne_bytes());
        }
        6 => ring.write(FLAGS, bytes.u16().to_ne_bytes()),
        _ => {
            let at = ring.descriptor(head + u64::from(bytes.byte() % 4));
            ring.write(at, bytes.u64().to_ne_bytes());
            ring.write(at + 8, bytes.u64().to_ne_bytes());
        }
    }
}

/// Runs the operations in `bytes` on a server with a malicious client.
pub(crate) fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let size = bytes.size();
    let (ring, layout) = Ring::new(size);
    assert!(ServerRing::new(layout).is_err(), "there is no cookie");
    ring.write(0, COOKIE.to_ne_bytes());
    let mut server = ServerRing::new(layout).unwrap();
    // Total numbers of entries that the client was seen to post, taken, and returned.
    let (mut posted, mut taken, mut returned) = (0u64, 0u64, 0u64);
    let size = u64::from(size.get());
    while !bytes.is_empty() {
        match bytes.byte() % 16 {
            0..7 => disturb(&ring, &mut bytes, posted),
            7..10 => {
                if let Ok(count) = server.poll() {
                    let now = taken + u64::from(count);
                    assert!((posted..=returned + size).contains(&now), "{now}");
                    posted = now;
                }
            }
            10..14 => {
                let count = u64::from(bytes.byte()).min(posted - taken);
                for index in 0..count {
                    let Posted { region, offset, len, more } = server.posted(index as u16);
                    let at = ring.descriptor(taken + index);
                    let [flags, read] = [ring.read(at), ring.read(at + 2)].map(u16::from_ne_bytes);
                    assert_eq!((more, region), (flags & 1 != 0, read));
                    let read = [ring.read(at + 4), ring.read(at + 8)].map(u32::from_ne_bytes);
                    assert_eq!([len, offset], read);
                    if bytes.flag() {
                        let (len, more) = (bytes.u32(), bytes.flag());
                        server.fill(index as u16, len, more);
                        // The client's buffer stays as it is.
                        assert_eq!(
                            server.posted(index as u16),
                            Posted { region, offset, len, more }
                        );
                    }
                }
                server.take(count as u16);
                taken += count;
            }
            14 => {
                let before = ring.read(TAIL);
                server.publish();
                let expected =
                    if taken == returned { before } else { (taken as u16).to_ne_bytes() };
                assert_eq!(ring.read(TAIL), expected);
                returned = taken;
            }
            _ => {
                // This also reads the index: polling reports its result.
                server.want_interrupts(bytes.flag());
                if let Ok(count) = server.poll() {
                    posted = taken + u64::from(count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn server_survives_lying_client(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            run(&bytes);
        }
    }
}

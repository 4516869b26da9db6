//! A memif client against a server that writes anything at any time.

use dray_ring::memif::ClientRing;

use crate::bytes::Bytes;
use crate::memif::{FLAGS, Ring, TAIL};

/// Writes to a place in the ring, mostly something plausible; the bytes decide where and what.
/// `tail` is the index that the server should have.
fn disturb(ring: &Ring, bytes: &mut Bytes<'_>, tail: u16) {
    match bytes.byte() % 8 {
        0 => {
            let at = bytes.u32() as usize % (ring.len() - 8);
            ring.write(at, bytes.u64().to_ne_bytes());
        }
        1 => ring.write(TAIL, bytes.u16().to_ne_bytes()),
        2..5 => {
            let tail = tail.wrapping_add(u16::from(bytes.byte() % 8)).wrapping_sub(1);
            ring.write(TAIL, tail.to_ne_bytes());
        }
        5 => ring.write(FLAGS, bytes.u16().to_ne_bytes()),
        _ => {
            let at = ring.descriptor(tail.wrapping_add(u16::from(bytes.byte() % 4)).into());
            ring.write(at, u16::from(bytes.byte()).to_ne_bytes());
            ring.write(at + 4, (bytes.u32() >> (bytes.byte() % 32)).to_ne_bytes());
        }
    }
}

/// Runs the operations in `bytes` on a client with a malicious server.
pub(crate) fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let size = bytes.size();
    let (ring, layout) = Ring::new(size);
    let mut client = ClientRing::new(layout);
    // Total numbers of entries posted, published, returned and taken.
    let (mut posted, mut published, mut returned, mut taken) = (0u64, 0u64, 0u64, 0u64);
    let size = u64::from(size.get());
    while !bytes.is_empty() {
        match bytes.byte() % 16 {
            0..6 => disturb(&ring, &mut bytes, returned as u16),
            6..9 => {
                for _ in 0..(bytes.byte() % 8).into() {
                    if client.room() == 0 {
                        break;
                    }
                    let entry = client.entry(0);
                    assert_eq!(u64::from(entry), posted % size);
                    let (offset, len, more) = (bytes.u16(), bytes.byte(), bytes.flag());
                    client.post(offset.into(), len.into(), more);
                    // Independently of the old content.
                    let expected = [u32::from(more), len.into(), offset.into(), 0];
                    let words = ring.read::<16>(ring.descriptor(entry.into()));
                    assert_eq!(words, *expected.map(u32::to_ne_bytes).as_flattened());
                    posted += 1;
                }
            }
            9..11 => {
                client.publish();
                published = posted;
            }
            11..13 => {
                if let Ok(count) = client.poll() {
                    let now = taken + u64::from(count);
                    assert!((returned..=published).contains(&now), "{now}");
                    returned = now;
                }
            }
            13..15 => {
                let count = u64::from(bytes.byte()).min(returned - taken) as u16;
                for index in 0..count {
                    let entry = client.returned(index).entry;
                    assert_eq!(u64::from(entry), (taken + u64::from(index)) % size);
                }
                client.take(count);
                taken += u64::from(count);
            }
            _ => {
                // This also reads the index: polling reports its result.
                client.want_interrupts(bytes.flag());
                if let Ok(count) = client.poll() {
                    returned = taken + u64::from(count);
                }
            }
        }
        assert_eq!(u64::from(client.in_use()), posted - taken);
        assert_eq!(u64::from(client.room()), size - (posted - taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn client_survives_lying_server(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            run(&bytes);
        }
    }
}

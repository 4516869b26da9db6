//! Addresses pinned to ports.

use dray_wire::MacAddr;

/// Map from pinned address to port. Immutable; replaced when ports are added or removed.
///
/// Uses open addressing, at most half full. Peers choose the addresses that are looked up; only the
/// operator's configuration chooses those in the map.
#[derive(Debug)]
pub(super) struct Pins {
    /// Address in the upper bits, port + 1 in the low 16 bits; 0: free.
    slots: Box<[u64]>,
}

const PORT_BITS: u32 = 16;

impl Pins {
    /// Returns `None` if no address is pinned, so that lookups can be skipped.
    pub(super) fn new<'m>(pinned: impl Iterator<Item = (u16, &'m [MacAddr])>) -> Option<Self> {
        let words: Vec<u64> =
            pinned.flat_map(|(port, macs)| macs.iter().map(move |mac| word(*mac, port))).collect();
        if words.is_empty() {
            return None;
        }
        let mut pins = Self { slots: vec![0; (2 * words.len()).next_power_of_two()].into() };
        for word in words {
            let at = pins.find(word >> PORT_BITS);
            pins.slots[at] = word;
        }
        Some(pins)
    }

    /// Returns the port that `mac` is pinned to.
    #[inline]
    pub(super) fn owner(&self, mac: MacAddr) -> Option<u16> {
        let word = self.slots[self.find(word(mac, 0) >> PORT_BITS)];
        (word as u16).checked_sub(1)
    }

    /// Returns the slot of an address, or the free slot where it would be.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing: the high bits depend on all bits of the key.
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[at] != 0 && self.slots[at] >> PORT_BITS != key {
            at = (at + 1) & mask;
        }
        at
    }
}

#[inline]
fn word(MacAddr([a, b, c, d, e, f]): MacAddr, port: u16) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f]) << PORT_BITS | (u64::from(port) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pinned_addresses_have_an_owner() {
        assert!(Pins::new([(3, &[][..])].into_iter()).is_none());
        for count in [1, 2, 3, 100, 5000] {
            let macs: Vec<_> = (0..count).map(|id| MacAddr::local(id * 256)).collect();
            let ports = macs.chunks(7).enumerate().map(|(port, macs)| (port as u16, macs));
            let pins = Pins::new(ports).unwrap();
            for (at, mac) in macs.iter().enumerate() {
                assert_eq!(pins.owner(*mac), Some((at / 7) as u16));
            }
            for id in 0..5000 {
                assert_eq!(pins.owner(MacAddr::local(id * 256 + 1)), None);
            }
            assert_eq!(pins.owner(MacAddr([0; 6])), None);
            assert_eq!(pins.owner(MacAddr([0xff; 6])), None);
        }
    }
}

//! Addresses pinned to ports.

use dray_wire::MacAddr;

/// Map from pinned address to ports, which are in different VLANs. Immutable; replaced when ports are
/// added or removed.
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
            let mut at = pins.home(word >> PORT_BITS);
            while pins.slots[at] != 0 {
                at = pins.after(at);
            }
            pins.slots[at] = word;
        }
        Some(pins)
    }

    /// Returns the ports that `mac` is pinned to: at most one in each VLAN.
    #[inline]
    pub(super) fn owners(&self, mac: MacAddr) -> impl Iterator<Item = u16> {
        let key = word(mac, 0) >> PORT_BITS;
        let mut at = self.home(key);
        let words = std::iter::from_fn(move || {
            let word = self.slots[at];
            at = self.after(at);
            (word != 0).then_some(word)
        });
        let own = words.filter(move |word| word >> PORT_BITS == key);
        own.filter_map(|word| (word as u16).checked_sub(1))
    }

    /// Returns the first slot in which an address can be.
    #[inline]
    fn home(&self, key: u64) -> usize {
        // Fibonacci hashing: the high bits depend on all bits of the key.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
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
    fn pinned_addresses_have_their_owners() {
        assert!(Pins::new([(3, &[][..])].into_iter()).is_none());
        for count in [1, 2, 3, 100, 5000] {
            let macs: Vec<_> = (0..count).map(|id| MacAddr::local(id * 256)).collect();
            let ports = macs.chunks(7).enumerate().map(|(port, macs)| (port as u16, macs));
            // All of them once more, at a port in other VLANs.
            let ports = ports.chain([(4000, &macs[..])]);
            let pins = Pins::new(ports).unwrap();
            let owners = |mac| pins.owners(mac).collect::<Vec<_>>();
            for (at, mac) in macs.iter().enumerate() {
                assert_eq!(owners(*mac), [(at / 7) as u16, 4000]);
            }
            for id in 0..5000 {
                assert_eq!(owners(MacAddr::local(id * 256 + 1)), [0; 0]);
            }
            assert_eq!(owners(MacAddr([0; 6])), [0; 0]);
            assert_eq!(owners(MacAddr([0xff; 6])), [0; 0]);
        }
    }
}

//! Addresses pinned to ports.

use std::hash::{BuildHasher, RandomState};

use dray_wire::MacAddr;

/// Map from VLAN and pinned address to the port. Immutable; replaced when ports are added or
/// removed.
///
/// Uses open addressing, at most half full. Peers choose the addresses that are looked up, and may
/// choose their own in the map, but each address of a VLAN is in it once: a lookup takes as long if
/// many VLANs have the address.
#[derive(Debug)]
pub(super) struct Pins {
    slots: Box<[Slot]>,
    /// Odd factor that peers do not know, so that they find no addresses that share a slot.
    factor: u64,
    /// Number of bits to shift a product by, for the index of a slot.
    shift: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Address in the upper bits, VLAN in the low 16 bits; [`FREE`] if nothing is pinned here.
    key: u64,
    port: u16,
}

/// No VLAN has this number.
const FREE: u64 = u64::MAX;

/// Number of slots that a lookup passes at most, if a factor for that is found.
const PASSED_MAX: usize = 48;
/// Number of factors to try. One in a hundred puts an address of all VLANs in long rows of slots:
/// its keys are a sequence, and so are its slots.
const FACTORS: usize = 16;

impl Pins {
    /// Creates the map of `pinned` addresses: VLAN, or 0 for ports without VLANs, address, and
    /// port. Returns `None` if there are none, so that lookups can be skipped.
    pub(super) fn new(pinned: impl Iterator<Item = (u16, MacAddr, u16)>) -> Option<Self> {
        let pinned: Vec<_> =
            pinned.map(|(vlan, mac, port)| Slot { key: key(vlan, mac), port }).collect();
        if pinned.is_empty() {
            return None;
        }
        let mut best: Option<(Self, usize)> = None;
        for _ in 0..FACTORS {
            let (pins, passed) = Self::with_factor(RandomState::new().hash_one(()) | 1, &pinned);
            if best.as_ref().is_none_or(|(_, least)| passed < *least) {
                best = Some((pins, passed));
            }
            if passed <= PASSED_MAX {
                break;
            }
        }
        best.map(|(pins, _)| pins)
    }

    /// Returns the map, and the number of slots that a lookup passes at most.
    fn with_factor(factor: u64, pinned: &[Slot]) -> (Self, usize) {
        let free = Slot { key: FREE, port: 0 };
        let len = (2 * pinned.len()).next_power_of_two();
        let shift = u64::BITS - len.trailing_zeros();
        let mut pins = Self { slots: vec![free; len].into(), factor, shift };
        let mut passed_max = 0;
        for slot in pinned {
            let (mut at, mut passed) = (pins.home(slot.key), 0);
            while pins.slots[at].key != FREE {
                at = pins.after(at);
                passed += 1;
            }
            pins.slots[at] = *slot;
            passed_max = passed_max.max(passed);
        }
        (pins, passed_max)
    }

    /// Returns the port that `mac` is pinned to in a VLAN; 0 stands for ports without VLANs.
    #[inline]
    pub(super) fn owner(&self, vlan: u16, mac: MacAddr) -> Option<u16> {
        let key = key(vlan, mac);
        let mut at = self.home(key);
        loop {
            let slot = self.slots[at];
            if slot.key == key {
                return Some(slot.port);
            }
            if slot.key == FREE {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Returns the first slot in which an address can be.
    #[inline]
    fn home(&self, key: u64) -> usize {
        // The high bits depend on all bits of the key.
        (key.wrapping_mul(self.factor) >> self.shift) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[inline]
fn key(vlan: u16, MacAddr([a, b, c, d, e, f]): MacAddr) -> u64 {
    u64::from_be_bytes([a, b, c, d, e, f, 0, 0]) | u64::from(vlan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_addresses_have_their_owners() {
        assert!(Pins::new(std::iter::empty()).is_none());
        for count in [1, 2, 3, 100, 5000] {
            let macs: Vec<_> = (0..count).map(|id| MacAddr::local(id * 256)).collect();
            // All of them once more, at a port in another VLAN.
            let pinned = macs
                .iter()
                .enumerate()
                .flat_map(|(at, mac)| [(0, *mac, (at / 7) as u16), (4094, *mac, 4000)]);
            let pins = Pins::new(pinned).unwrap();
            for (at, mac) in macs.iter().enumerate() {
                assert_eq!(pins.owner(0, *mac), Some((at / 7) as u16));
                assert_eq!(pins.owner(4094, *mac), Some(4000));
                assert_eq!(pins.owner(1, *mac), None);
            }
            for id in 0..5000 {
                assert_eq!(pins.owner(0, MacAddr::local(id * 256 + 1)), None);
            }
            assert_eq!(pins.owner(0, MacAddr([0; 6])), None);
            assert_eq!(pins.owner(0, MacAddr([0xff; 6])), None);
        }
    }

    /// The owner is found among the neighbours of one slot, not among those of all VLANs.
    #[test]
    fn address_of_all_vlans_is_found_at_once() {
        let mac = MacAddr::local(1);
        // Some factors alone would let a lookup pass hundreds of slots.
        for _ in 0..300 {
            let pins = Pins::new((1..=4094).map(|vlan| (vlan, mac, vlan))).unwrap();
            assert!((1..=4094).all(|vlan| pins.owner(vlan, mac) == Some(vlan)));
            let places = pins.slots.iter().enumerate().filter(|(_, slot)| slot.key != FREE);
            let passed = |(at, slot): (usize, &Slot)| {
                (at + pins.slots.len() - pins.home(slot.key)) % pins.slots.len()
            };
            let longest = places.map(passed).max().unwrap();
            assert!(longest <= PASSED_MAX, "{longest} slots further");
        }
    }
}

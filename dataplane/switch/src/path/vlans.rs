//! A port's VLANs, resolved when the port is opened.

use crate::config::Vlan;

/// VLAN membership of a port, so that a frame costs one bit test.
pub(super) struct Vlans {
    is_aware: bool,
    /// The VLAN whose frames carry no tag here; 0: none.
    untagged: u16,
    /// By VLAN, 64 per word: the VLANs whose frames carry their tag here.
    tagged: Option<Box<[u64; 64]>>,
}

/// Form in which a frame leaves a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Egress {
    /// Unchanged, between ports without VLANs.
    AsItIs,
    /// Without the tag of its VLAN.
    Untagged,
    /// With the tag of its VLAN.
    Tagged,
}

impl Vlans {
    pub(super) fn new(vlan: &Vlan) -> Self {
        match vlan {
            Vlan::Unaware => Self { is_aware: false, untagged: 0, tagged: None },
            Vlan::Access(vlan) => Self { is_aware: true, untagged: (*vlan).into(), tagged: None },
            Vlan::Trunk { tagged, native } => {
                let mut bits = Box::new([0; 64]);
                for vlan in tagged.iter().map(|vlan| u16::from(*vlan)) {
                    bits[usize::from(vlan / 64)] |= 1 << (vlan % 64);
                }
                let untagged = native.map_or(0, u16::from);
                Self { is_aware: true, untagged, tagged: Some(bits) }
            }
        }
    }

    /// Returns true if the port has VLANs at all.
    #[inline]
    pub(super) fn is_aware(&self) -> bool {
        self.is_aware
    }

    /// Returns the VLAN of a frame that arrives with the VLAN identifier `tag`, which is 0 if the
    /// frame has no tag or only a priority tag; `None` if the port does not belong to the VLAN.
    #[inline]
    pub(super) fn ingress(&self, tag: u16) -> Option<u16> {
        match tag {
            0 => Some(self.untagged).filter(|vlan| *vlan != 0),
            tag => self.is_tagged(tag).then_some(tag),
        }
    }

    /// Returns how a frame of `vlan` leaves here; `None` if the port does not belong to it. VLAN 0
    /// stands for ports without VLANs.
    #[inline]
    pub(super) fn egress(&self, vlan: u16) -> Option<Egress> {
        if !self.is_aware {
            return (vlan == 0).then_some(Egress::AsItIs);
        }
        if vlan != 0 && vlan == self.untagged {
            return Some(Egress::Untagged);
        }
        self.is_tagged(vlan).then_some(Egress::Tagged)
    }

    fn is_tagged(&self, vlan: u16) -> bool {
        let bits = self.tagged.as_ref();
        bits.is_some_and(|bits| bits[usize::from(vlan / 64) % 64] >> (vlan % 64) & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortConfig;

    fn vlans(keys: &str) -> Vlans {
        Vlans::new(&format!("a=null:{keys}").parse::<PortConfig>().unwrap().vlan)
    }

    #[test]
    fn vlan_membership_matches_config() {
        let (plain, access) = (vlans(""), vlans(",vlan=10"));
        let trunk = vlans(",trunk=1+63+64+4094,native=10");
        for vlan in 0..=4095 {
            let own = vlan == 10;
            assert_eq!(plain.egress(vlan), (vlan == 0).then_some(Egress::AsItIs));
            assert_eq!(access.egress(vlan), own.then_some(Egress::Untagged));
            assert_eq!(access.ingress(vlan), (vlan == 0).then_some(10));
            let tagged = [1, 63, 64, 4094].contains(&vlan);
            let egress =
                if own { Some(Egress::Untagged) } else { tagged.then_some(Egress::Tagged) };
            assert_eq!(trunk.egress(vlan), egress, "{vlan}");
            let ingress = if vlan == 0 { Some(10) } else { tagged.then_some(vlan) };
            assert_eq!(trunk.ingress(vlan), ingress, "{vlan}");
        }
        assert_eq!(vlans(",trunk=1").ingress(0), None);
        assert!(access.is_aware() && trunk.is_aware() && !plain.is_aware());
    }
}

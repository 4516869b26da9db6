//! The head that a frame leaves with: bytes that the switch has copied once, checked, and sends.
//!
//! A sender that shares memory can change a frame at any time. Where that could break a guarantee,
//! which is where ports have VLANs or pinned addresses, the switch reads nothing a second time that
//! it has checked: addresses, tag and type leave as they were when the frame was classified, and
//! everything after them is payload, whatever its content.

use dray_port::Frame;
use dray_wire::ethernet::{ETHERNET_LEN, TAG_LEN, TAG_TYPE, is_tag_type};

use super::vlans::{Egress, Vlans};
use crate::counters::DropReason;

/// Length of a header with a tag between source and type.
const TAGGED_LEN: usize = ETHERNET_LEN + TAG_LEN;

/// The classified beginning of a frame, and both heads that the frame can leave with.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// VLAN of the frame; 0 between ports without VLANs.
    pub(super) vlan: u16,
    /// The egress for which the received bytes can be sent unchanged.
    came: Option<Egress>,
    /// Number of bytes of the frame that the head replaces.
    len: u8,
    bare: [u8; ETHERNET_LEN],
    tagged: [u8; TAGGED_LEN],
}

impl Head {
    pub(super) const EMPTY: Self =
        Self { vlan: 0, came: None, len: 0, bare: [0; ETHERNET_LEN], tagged: [0; TAGGED_LEN] };

    /// Reads the head of `frame`, received on a port with `vlans`. `first` are the frame's first
    /// bytes: the caller has read them already, and they are not read again.
    #[inline]
    pub(super) fn read(
        vlans: &Vlans,
        frame: &Frame<'_>,
        first: [u8; ETHERNET_LEN],
    ) -> Result<Self, DropReason> {
        let mut head = Self { bare: first, len: ETHERNET_LEN as u8, ..Self::EMPTY };
        if !vlans.is_aware() {
            head.came = Some(Egress::AsItIs);
            return Ok(head);
        }
        let [addresses @ .., kind_0, kind_1] = first;
        let (tci, came) = match [kind_0, kind_1] {
            TAG_TYPE => {
                let mut rest = [0; TAG_LEN];
                if frame.copy_from(ETHERNET_LEN, &mut rest) < rest.len() {
                    return Err(DropReason::TooShort);
                }
                let [tci_0, tci_1, kind @ ..] = rest;
                head.bare[ETHERNET_LEN - 2..].copy_from_slice(&kind);
                head.len = TAGGED_LEN as u8;
                let tci = u16::from_be_bytes([tci_0, tci_1]);
                // VLAN 0 in a tag means priority only; the frame belongs where an untagged one
                // would.
                (tci, (tci & 0xfff != 0).then_some(Egress::Tagged))
            }
            // No port belongs to a provider's VLAN.
            kind if is_tag_type(kind) => return Err(DropReason::VlanNotAllowed),
            _ => (0, Some(Egress::Untagged)),
        };
        head.came = came;
        head.vlan = vlans.ingress(tci & 0xfff).ok_or(DropReason::VlanNotAllowed)?;
        // The priority of a tag is kept.
        let tci = tci & 0xf000 | head.vlan;
        head.tagged[..12].copy_from_slice(&addresses);
        head.tagged[12..14].copy_from_slice(&TAG_TYPE);
        head.tagged[14..16].copy_from_slice(&tci.to_be_bytes());
        head.tagged[16..].copy_from_slice(&head.bare[12..]);
        Ok(head)
    }

    /// Returns `frame`, whose head this is, as it leaves by `egress`.
    #[inline]
    pub(super) fn leave<'f>(
        &'f self,
        frame: &Frame<'f>,
        egress: Egress,
    ) -> Result<Frame<'f>, DropReason> {
        if self.came == Some(egress) && !frame.may_change() {
            return Ok(*frame);
        }
        let body = usize::from(self.len)..frame.len();
        let head = match egress {
            Egress::Tagged if TAGGED_LEN + body.len() > frame.limit() => {
                return Err(DropReason::TooLong);
            }
            Egress::Tagged => &self.tagged[..],
            Egress::Untagged if is_tag_type([self.bare[12], self.bare[13]]) => {
                return Err(DropReason::DoubleTag);
            }
            Egress::Untagged | Egress::AsItIs => &self.bare,
        };
        Ok(frame.with_head(head, body))
    }
}

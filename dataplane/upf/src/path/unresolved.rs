//! Packets that wait for the Ethernet address of their next hop (RFC 1122, section 2.3.2.2; RFC 4861,
//! section 7.2.2).
//!
//! They are complete but for the destination of their Ethernet header, whose place has the address of
//! the station that the packet came from, or 0 in a message of our own. Once the address is known, they
//! leave in order, before any newer packet to the same next hop. The oldest makes room for a newer one,
//! as RFC 4861 asks: of the same next hop if that has its share, else of any.

use std::time::Duration;

use arrayvec::ArrayVec;
use dray_port::{Frame, clock};
use dray_wire::MacAddr;

use super::lane::CHUNK;
use super::store::Store;
use crate::interface::Interface;
use crate::neighbours::HOPS_MAX;

/// Time that a packet waits for a neighbour to reply: as long as it is asked until it counts as absent.
const LIFETIME: Duration = Duration::from_secs(3);
/// Number of packets that may wait for a neighbour in any case.
const LEAST: usize = 1024;
/// Length of the destination in an Ethernet header, which comes first.
const MAC_LEN: usize = 6;

/// Packets of one worker that wait for the Ethernet addresses of next hops.
pub(crate) struct Unresolved {
    store: Store,
    /// Number of the first place of each next hop.
    firsts: Box<[u32]>,
    /// Maximum number of packets for each next hop.
    most: u16,
    /// Number of addresses [learned](crate::neighbours::Neighbours::learned) when it was last looked for
    /// packets that may leave.
    pub(super) learned: u64,
}

/// A packet that is dropped, with its next hop.
pub(super) struct Lost<'s> {
    pub(super) hop: u16,
    pub(super) frame: &'s [u8],
}

impl Unresolved {
    /// Creates room for frames of `frame_max` bytes: for each next hop as many as may be `buffered` for
    /// all sessions, since these may leave at once, and for all next hops twice as many.
    pub(crate) fn new(buffered: usize, frame_max: usize) -> Self {
        let most = buffered.clamp(LEAST, u16::MAX.into());
        let store = Store::new(2 * most, frame_max, clock::to_ticks(LIFETIME));
        Self { store, firsts: vec![0; HOPS_MAX].into(), most: most as u16, learned: 0 }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Returns the Ethernet address of a next hop of `to`; `None` if it is not known, or if packets still
    /// wait for it, which have to leave first.
    #[inline(always)]
    pub(super) fn mac_of(&self, to: &Interface, hop: u16) -> Option<MacAddr> {
        let mac = to.mac_of(hop);
        match self.is_empty() {
            true => mac,
            false => mac.filter(|_| !self.is_awaited(hop)),
        }
    }

    /// Returns true if packets wait for a next hop.
    pub(super) fn is_awaited(&self, hop: u16) -> bool {
        self.firsts[usize::from(hop)] != 0
    }

    /// Hands the packet that has to make room for one to `hop` to `lost`, if there is one.
    pub(super) fn make_room(&mut self, hop: u16, lost: impl FnOnce(Lost<'_>)) {
        let has_share = self.store.count(self.firsts[usize::from(hop)]) >= self.most;
        let is_full = self.store.check_room(0).is_err();
        let hop = match self.store.oldest() {
            _ if has_share => hop,
            Some((oldest, _)) if is_full => oldest as u16,
            _ => return,
        };
        self.lose_first(hop, lost);
    }

    /// Keeps a packet; the caller has [made room](Self::make_room) for it. Returns false if it is too
    /// long.
    pub(super) fn keep(&mut self, hop: u16, frame: &Frame<'_>, now: u64) -> bool {
        let fits = self.store.check_room(frame.len()).is_ok();
        if fits {
            let first = &mut self.firsts[usize::from(hop)];
            self.store.keep(hop.into(), first, frame, frame.len(), now);
        }
        fits
    }

    /// Hands a packet that has waited for too long at the tick `now` to `lost`; returns false if there is
    /// none.
    pub(super) fn expire(&mut self, now: u64, lost: impl FnOnce(Lost<'_>)) -> bool {
        let Some(hop) = self.store.expired(now) else { return false };
        self.lose_first(hop as u16, lost);
        true
    }

    fn lose_first(&mut self, hop: u16, lost: impl FnOnce(Lost<'_>)) {
        let first = &mut self.firsts[usize::from(hop)];
        if let Some((frame, _)) = self.store.first_mut(*first) {
            lost(Lost { hop, frame });
        }
        self.store.forget_first(first);
    }

    /// Hands the first packets that wait for `hop`, up to [`CHUNK`], to `leave`, with `mac` as their
    /// destination and true if they are messages of our own; all of them are, or none.
    pub(super) fn release(
        &mut self,
        hop: u16,
        mac: MacAddr,
        leave: impl FnOnce(&[Frame<'_>], bool),
    ) {
        let first = &mut self.firsts[usize::from(hop)];
        let (mut at, mut count, mut are_own) = (*first, 0, None);
        while let Some((frame, next)) = self.store.first_mut(at)
            && count < CHUNK
            && *are_own.get_or_insert(is_own(frame)) == is_own(frame)
        {
            frame[..MAC_LEN].copy_from_slice(&mac.0);
            (at, count) = (next, count + 1);
        }
        let frames = self.store.waiting(*first).take(count).map(Frame::from);
        leave(&frames.collect::<ArrayVec<_, CHUNK>>(), are_own.unwrap_or_default());
        (0..count).for_each(|_| self.store.forget_first(first));
    }
}

/// Returns true if a packet that waits is a message of our own.
pub(super) fn is_own(frame: &[u8]) -> bool {
    frame[..MAC_LEN] == [0; MAC_LEN]
}

//! Packets that wait for the Ethernet address of their next hop (RFC 1122, section 2.3.2.2; RFC
//! 4861, section 7.2.2).
//!
//! They are complete but for the destination of their Ethernet header, whose place has the address
//! of the station that the packet came from, or 0 in a message of our own. Once the address is
//! known, they leave in order, before any newer packet to the same next hop. If there is no room,
//! the oldest packet is dropped (RFC 4861, section 7.2.2): of the same next hop if that has its
//! share, else of any.

use std::time::Duration;

use arrayvec::ArrayVec;
use dray_port::{Frame, clock};
use dray_wire::MacAddr;

use super::egress_queue::FrameClass;
use super::header_buffer::CHUNK;
use super::packet_buffer::PacketBuffer;
use super::pending_rates::PendingRates;
use crate::interface::Interface;
use crate::neighbours::HOPS_MAX;

/// Time that a packet waits for a neighbour to reply: that until a neighbour without replies counts
/// as absent.
const LIFETIME: Duration = Duration::from_secs(3);
/// Number of packets that may wait for a neighbour in any case.
const LEAST: usize = 1024;
/// Bit of a group address, which no station has: it marks all fragments of a packet but the last
/// one.
const GROUP: u8 = 1;
/// Length of the destination in an Ethernet header, which comes first.
const MAC_LEN: usize = 6;

/// Packets of one worker that wait for the Ethernet addresses of next hops.
pub(crate) struct Unresolved {
    store: PacketBuffer<Option<PendingRates>>,
    /// Number of the first place of each next hop.
    firsts: Box<[u32]>,
    /// Number of packets that were received.
    packets: u64,
    /// Maximum number of packets for each next hop.
    most: u16,
    /// Number of addresses [learned](crate::neighbours::Neighbours::learned) at the last search
    /// for packets that may leave.
    pub(super) learned: u64,
}

/// A packet that is dropped, with its next hop.
pub(super) struct Lost<'s> {
    pub(super) hop: u16,
    pub(super) frame: &'s [u8],
}

impl Unresolved {
    /// Creates room for frames of `frame_max` bytes: for each next hop as many as may be `buffered`
    /// for all sessions, since these may leave at once, and for all next hops twice as many.
    pub(crate) fn new(buffered: usize, frame_max: usize) -> Self {
        let most = buffered.clamp(LEAST, u16::MAX.into());
        let store = PacketBuffer::new(2 * most, frame_max, clock::to_ticks(LIFETIME));
        Self { store, firsts: vec![0; HOPS_MAX].into(), packets: 0, most: most as u16, learned: 0 }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Returns the Ethernet address of a next hop of `to`; `None` if it is not known, or if packets
    /// still wait for it, which have to leave first.
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

    /// Makes room for a packet to `hop`: passes the packet that is dropped for it, if any, to
    /// `lost`.
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

    /// Keeps a packet; the caller has [made room](Self::make_room) for it. Returns false if it is
    /// too long.
    pub(super) fn keep(
        &mut self,
        (hop, pending): (u16, Option<PendingRates>),
        frame: &Frame<'_>,
        class: FrameClass,
        now: u64,
    ) -> bool {
        let fits = self.store.check_room(frame.len()).is_ok();
        if fits {
            let first = &mut self.firsts[usize::from(hop)];
            let at = self.store.keep((hop.into(), pending), first, frame, frame.len(), now);
            mark(at, class);
            self.packets += u64::from(class == FrameClass::Packet);
        }
        fits
    }

    /// Returns the number of packets that were received, and wait.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Passes a packet that has expired at the tick `now` to `lost`; returns false if there is
    /// none.
    pub(super) fn expire(&mut self, now: u64, lost: impl FnOnce(Lost<'_>)) -> bool {
        let Some(hop) = self.store.expired(now) else { return false };
        self.lose_first(hop as u16, lost);
        true
    }

    fn lose_first(&mut self, hop: u16, lost: impl FnOnce(Lost<'_>)) {
        let first = &mut self.firsts[usize::from(hop)];
        if let Some((frame, ..)) = self.store.first_mut(*first) {
            self.packets -= u64::from(class(frame) == FrameClass::Packet);
            lost(Lost { hop, frame });
        }
        self.store.forget_first(first);
    }

    /// Passes the first packets that wait for `hop`, up to [`CHUNK`], with `mac` as their
    /// destination to `leave`, and the class and pending rates of each. Either all are messages
    /// of our own, or none is.
    pub(super) fn release(
        &mut self,
        hop: u16,
        mac: MacAddr,
        leave: impl FnOnce(&[Frame<'_>], &[(FrameClass, Option<PendingRates>)]),
    ) {
        let first = &mut self.firsts[usize::from(hop)];
        let (mut at, mut classes) =
            (*first, ArrayVec::<(FrameClass, Option<PendingRates>), CHUNK>::new());
        while let Some((frame, pending, next)) = self.store.first_mut(at)
            && !classes.is_full()
            && classes
                .first()
                .is_none_or(|(first, _)| (*first == FrameClass::Generated) == is_own(frame))
        {
            classes.push((class(frame), pending));
            frame[..MAC_LEN].copy_from_slice(&mac.0);
            at = next;
        }
        let frames = self.store.waiting(*first).take(classes.len()).map(Frame::from);
        leave(&frames.collect::<ArrayVec<_, CHUNK>>(), &classes);
        classes.iter().for_each(|_| self.store.forget_first(first));
        self.packets -=
            classes.iter().filter(|(class, _)| *class == FrameClass::Packet).count() as u64;
    }
}

/// Marks a waiting packet with its class.
fn mark(frame: &mut [u8], class: FrameClass) {
    match class {
        FrameClass::Fragment => frame[0] |= GROUP,
        // From no station: it has our own address, to which no message goes.
        FrameClass::Packet if self::class(frame) != class => {
            frame.copy_within(MAC_LEN..2 * MAC_LEN, 0);
        }
        FrameClass::Packet | FrameClass::Generated => {}
    }
}

/// Returns the class of a waiting packet.
pub(super) fn class(frame: &[u8]) -> FrameClass {
    match frame[0] & GROUP {
        _ if is_own(frame) => FrameClass::Generated,
        0 => FrameClass::Packet,
        _ => FrameClass::Fragment,
    }
}

/// Returns true if a waiting packet is a message of our own.
fn is_own(frame: &[u8]) -> bool {
    frame[..MAC_LEN] == [0; MAC_LEN]
}

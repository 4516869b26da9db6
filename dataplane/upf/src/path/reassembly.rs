//! Reassembly of fragmented outer packets, within bounds (RFC 791, RFC 8200, RFC 5722).
//!
//! ```text
//!  one entry:   | room | Ethernet | IP, 20 or 40 | payload, each fragment at its offset ... |
//!                      ^ the frame, once it is complete
//! ```
//!
//! A copy of a fragment that has arrived already is ignored (RFC 791, section 3.2; RFC 8200,
//! section 4.5): it begins and ends where that one does, and has the same bytes. Any other overlap
//! drops the packet.
//!
//! A worker reassembles packets from its own queues. Ports that distribute packets by a hash use
//! only the addresses of fragments, so all fragments of a packet arrive on the same queue.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use dray_port::{FRAME_LIMIT, Frame, Scratch, clock};
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet};
use dray_wire::fragment::FragmentHeader;
use dray_wire::ip::{self, Header, IPV4_LEN, IPV6_LEN, Packet, ecn, protocol};

use super::reading;
use crate::counters::{DropReason, Drops};

/// Maximum number of incomplete packets, in total and per source (more exactly: per bucket of
/// sources).
const ENTRIES: usize = 256;
const ENTRIES_PER_BUCKET: u16 = 16;
const BUCKETS: usize = 256;
/// Time that the first fragment of a packet waits for the others. Much shorter than on hosts: a
/// gNB's fragments arrive together, and at 100,000 packets a second an IPv4 identification is
/// reused after 0.7 s.
const LIFETIME: Duration = Duration::from_millis(500);

/// Position of the payload in an entry.
const PAYLOAD: usize = ETHERNET_LEN + IPV6_LEN;
/// Maximum length of a reassembled payload, in bytes: longer frames are not carried.
const PAYLOAD_MAX: usize = (FRAME_LIMIT - PAYLOAD) & !7;
const UNIT: usize = 8;
const WORDS: usize = (PAYLOAD_MAX / UNIT).div_ceil(64);

/// A bit for each unit of a payload.
#[derive(Clone, Copy, Debug)]
struct Units([u64; WORDS]);

impl Units {
    fn has(&self, unit: usize) -> bool {
        self.0.get(unit / 64).is_some_and(|word| word >> (unit % 64) & 1 != 0)
    }

    fn add(&mut self, unit: usize) {
        self.0[unit / 64] |= 1 << (unit % 64);
    }
}

/// The headers of a fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) ethernet: Ethernet,
    pub(super) packet: Packet,
    pub(super) header: FragmentHeader,
}

type Key = (u128, u128, u32);

/// An incomplete packet.
#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    due: u64,
    bucket: u8,
    /// Number of fragments received.
    fragments: u16,
    /// Length of the payload, once the last fragment has arrived.
    len: Option<usize>,
    /// End of the fragment that reaches furthest.
    furthest: usize,
    /// Number of units received.
    units: usize,
    there: Units,
    /// Units with which a fragment begins.
    starts: Units,
    /// A bit for each ECN codepoint of its fragments.
    ecn: u8,
    first: Option<(Ethernet, Packet)>,
    /// True if fragments overlapped: the whole packet is dropped, including later fragments.
    wrong: bool,
}

impl Entry {
    const EMPTY: Self = Self {
        key: (0, 0, 0),
        due: 0,
        bucket: 0,
        fragments: 0,
        len: None,
        furthest: 0,
        units: 0,
        there: Units([0; WORDS]),
        starts: Units([0; WORDS]),
        ecn: 0,
        first: None,
        wrong: false,
    };

    /// Returns true if one of its fragments consists of exactly these units and ends at `end`.
    fn has_fragment(&self, units: Range<usize>, end: usize, more: bool) -> bool {
        let next = units.end;
        let is_one = |unit| self.there.has(unit) && self.starts.has(unit) == (unit == units.start);
        let ends_there = !self.there.has(next) || self.starts.has(next);
        units.clone().all(is_one) && ends_there && (self.len == Some(end)) != more
    }
}

/// Incomplete packets, and at most one complete packet that has not been taken.
pub(super) struct Reassembly {
    /// Hash of each entry's key; 0: free.
    tags: Box<[u64; ENTRIES]>,
    entries: Vec<Entry>,
    buckets: Box<[u16; BUCKETS]>,
    /// [`FRAME_LIMIT`] bytes for each entry.
    bytes: Box<[u8]>,
    hasher: RandomState,
    /// No entry expires before this tick.
    next_due: u64,
    complete: Option<(usize, Range<usize>)>,
}

impl Reassembly {
    pub(super) fn new() -> Self {
        Self {
            tags: Box::new([0; ENTRIES]),
            entries: vec![Entry::EMPTY; ENTRIES],
            buckets: Box::new([0; BUCKETS]),
            // Memory that is never touched is not allocated.
            bytes: vec![0; ENTRIES * FRAME_LIMIT].into(),
            hasher: RandomState::new(),
            next_due: u64::MAX,
            complete: None,
        }
    }

    /// Adds the fragment in `frame`; drops it while a complete packet has not been taken.
    pub(super) fn take(
        &mut self,
        (part, frame): (&Part, &Frame<'_>),
        now: u64,
        scratch: &mut Scratch,
        drops: &mut Drops,
    ) {
        let FragmentHeader { ident, offset, more, protocol, header_len } = part.header;
        if self.complete.is_some() {
            return drops.add(DropReason::FragmentFull, 1);
        }
        let Some(len) = part.packet.len.checked_sub(header_len) else {
            return drops.add(DropReason::OuterFragment, 1);
        };
        // The upper-layer header (UDP) must be in the first fragment (RFC 7112).
        let is_right = protocol == protocol::UDP
            && len > 0
            && (!more || len % UNIT == 0)
            && (offset > 0 || len >= UNIT)
            && offset + len <= PAYLOAD_MAX;
        if !is_right {
            return drops.add(DropReason::OuterFragment, 1);
        }
        let index = self.entry((part.packet.src, part.packet.dst, ident), now, drops);
        let entry = &mut self.entries[index];
        let room = &mut self.bytes[index * FRAME_LIMIT..][..FRAME_LIMIT];
        let (end, units) = (offset + len, offset / UNIT..(offset + len).div_ceil(UNIT));
        if !entry.wrong && entry.has_fragment(units.clone(), end, more) {
            let bytes = &frame.bytes(scratch)[ETHERNET_LEN + header_len..][..len];
            if *bytes == room[PAYLOAD + offset..PAYLOAD + end] {
                return drops.add(DropReason::FragmentCopy, 1);
            }
        }
        entry.fragments += 1;
        let overlaps = units.clone().any(|unit| entry.there.has(unit));
        let is_end_wrong = match entry.len {
            Some(known) => end > known || !more,
            None => !more && entry.furthest > end,
        };
        if overlaps || is_end_wrong || entry.wrong {
            entry.wrong = true;
            drops.add(DropReason::OuterFragment, std::mem::take(&mut entry.fragments).into());
            return;
        }
        units.clone().for_each(|unit| entry.there.add(unit));
        entry.starts.add(units.start);
        entry.units += units.len();
        entry.furthest = entry.furthest.max(end);
        entry.ecn |= 1 << (part.packet.tos & ecn::MASK);
        if !more {
            entry.len = Some(end);
        }
        if offset == 0 {
            entry.first = Some((part.ethernet, part.packet));
        }
        frame.copy_from(ETHERNET_LEN + header_len, &mut room[PAYLOAD + offset..PAYLOAD + end]);
        if entry.len.is_some_and(|len| entry.units == len.div_ceil(UNIT)) {
            match finish(entry, room) {
                Ok(frame) => self.complete = Some((index, frame)),
                Err(reason) => {
                    drops.add(reason, entry.fragments.into());
                    self.free(index);
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// Returns the complete frame, if there is one, together with the memory of all frames: see
    /// [`give_back`](Self::give_back).
    pub(super) fn complete(&mut self) -> Option<Whole> {
        let (index, frame) = self.complete.take()?;
        self.free(index);
        let start = index * FRAME_LIMIT;
        let range = start + frame.start..start + frame.end;
        let fragments = self.entries[index].fragments;
        Some(Whole { bytes: std::mem::take(&mut self.bytes), range, fragments })
    }

    /// Returns the number of fragments of packets that are incomplete, or have not been taken.
    pub(super) fn waiting(&self) -> u64 {
        if self.next_due == u64::MAX && self.complete.is_none() {
            return 0;
        }
        let entries = self.tags.iter().zip(&self.entries).filter(|(tag, _)| **tag != 0);
        entries.map(|(_, entry)| u64::from(entry.fragments)).sum()
    }

    /// Takes back the memory of a processed frame.
    pub(super) fn give_back(&mut self, whole: Whole) {
        self.bytes = whole.bytes;
    }

    /// Drops fragments whose time has expired.
    #[inline(always)]
    pub(super) fn expire(&mut self, drops: &mut Drops) {
        if self.next_due != u64::MAX {
            self.expire_at(clock::ticks(), drops);
        }
    }

    #[cold]
    fn expire_at(&mut self, now: u64, drops: &mut Drops) {
        if now < self.next_due {
            return;
        }
        self.next_due = u64::MAX;
        for index in 0..ENTRIES {
            let Entry { due, fragments, .. } = self.entries[index];
            let is_complete =
                self.complete.as_ref().is_some_and(|(complete, _)| *complete == index);
            if self.tags[index] == 0 || is_complete {
                continue;
            }
            if due <= now {
                drops.add(DropReason::FragmentTimeout, fragments.into());
                self.free(index);
            } else {
                self.next_due = self.next_due.min(due);
            }
        }
    }

    /// Returns the entry of a key, and creates it if needed.
    fn entry(&mut self, key: Key, now: u64, drops: &mut Drops) -> usize {
        self.expire_at(now, drops);
        let tag = self.hasher.hash_one(key) | 1;
        let known = self.tags.iter().enumerate().filter(|(_, known)| **known == tag);
        let mut known = known.map(|(index, _)| index);
        if let Some(index) = known.find(|index| self.entries[*index].key == key) {
            return index;
        }
        let bucket = self.hasher.hash_one(key.0) as u8;
        // A source with too many packets evicts one of its own; otherwise the bucket with most
        // packets makes room.
        if self.buckets[usize::from(bucket)] >= ENTRIES_PER_BUCKET {
            self.push_out(bucket, drops);
        }
        let free = self.tags.iter().position(|tag| *tag == 0);
        let index = free.unwrap_or_else(|| {
            let most = (0..BUCKETS).max_by_key(|bucket| self.buckets[*bucket]).unwrap_or_default();
            self.push_out(most as u8, drops)
        });
        self.tags[index] = tag;
        self.buckets[usize::from(bucket)] += 1;
        let due = now + clock::to_ticks(LIFETIME);
        self.next_due = self.next_due.min(due);
        self.entries[index] = Entry { key, due, bucket, ..Entry::EMPTY };
        index
    }

    /// Drops the oldest packet of a non-empty bucket, and returns its entry.
    fn push_out(&mut self, bucket: u8, drops: &mut Drops) -> usize {
        let of_bucket =
            |index: &usize| self.tags[*index] != 0 && self.entries[*index].bucket == bucket;
        let oldest = (0..ENTRIES).filter(of_bucket).min_by_key(|index| self.entries[*index].due);
        let oldest = oldest.unwrap_or_default();
        drops.add(DropReason::FragmentFull, self.entries[oldest].fragments.into());
        self.free(oldest);
        oldest
    }

    fn free(&mut self, index: usize) {
        self.tags[index] = 0;
        self.buckets[usize::from(self.entries[index].bucket)] -= 1;
    }
}

/// A complete frame, within the memory of all frames.
pub(super) struct Whole {
    bytes: Box<[u8]>,
    range: Range<usize>,
    fragments: u16,
}

impl Whole {
    /// Returns the number of fragments that it came in.
    pub(super) fn fragments(&self) -> u16 {
        self.fragments
    }

    pub(super) fn frame(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// Writes the headers of a complete packet, and returns the range of its frame.
fn finish(entry: &Entry, room: &mut [u8]) -> Result<Range<usize>, DropReason> {
    let wrong = DropReason::OuterFragment;
    let (first, len) = (entry.first.as_ref().ok_or(wrong)?, entry.len.ok_or(wrong)?);
    let (ethernet, packet) = first;
    let (head, payload) = room.split_at_mut(PAYLOAD);
    let (src, dst) = (packet.source(), packet.destination());
    // IPv4 identifications are soon reused: the checksum detects mixed fragments of two packets
    // (RFC 4963). Zero means that there is no checksum.
    if payload[6..8] != [0, 0]
        && ip::upper_checksum(src, dst, protocol::UDP, &[&payload[..len]]) != 0
    {
        return Err(DropReason::OuterUdp);
    }
    // RFC 3168, section 5.3: a fragment with CE marks the whole packet; CE together with Not-ECT
    // drops it.
    let is_congested = entry.ecn >> ecn::CE & 1 != 0;
    if is_congested && entry.ecn >> ecn::NOT_ECT & 1 != 0 {
        return Err(wrong);
    }
    let tos = packet.tos | if is_congested { ecn::CE } else { 0 };
    let (protocol, ttl, payload_len) = (protocol::UDP, packet.ttl, len as u16);
    let start = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = head.last_chunk_mut::<IPV4_LEN>().ok_or(wrong)?;
            Header { src, dst, protocol, tos, ttl, payload_len }.write(header);
            PAYLOAD - IPV4_LEN - ETHERNET_LEN
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = head.last_chunk_mut::<IPV6_LEN>().ok_or(wrong)?;
            Header { src, dst, protocol, tos, ttl, payload_len }.write(header);
            0
        }
        _ => return Err(wrong),
    };
    let header = Ethernet { ethertype: reading::ethertype(packet.version), ..*ethernet };
    header.write(head[start..].first_chunk_mut::<ETHERNET_LEN>().ok_or(wrong)?);
    Ok(start..PAYLOAD + len)
}

#[cfg(test)]
mod tests {
    use dray_wire::MacAddr;
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 2000;

    fn part(src: u8, ident: u32, units: Range<usize>, end: usize) -> (Part, Vec<u8>) {
        let (offset, end) = (units.start * UNIT, (units.end * UNIT).min(end));
        let packet = Packet {
            version: ip::Version::V4,
            src: ip::number([10, 0, 0, src].into()),
            dst: ip::number([10, 0, 0, 200].into()),
            tos: 0,
            ttl: 9,
            protocol: protocol::UDP,
            fragment: ip::Fragment::Later,
            dont_fragment: false,
            ports: None,
            header_len: IPV4_LEN,
            len: IPV4_LEN + end - offset,
        };
        let header = FragmentHeader {
            ident,
            offset,
            more: end < LEN,
            protocol: protocol::UDP,
            header_len: IPV4_LEN,
        };
        let mac = MacAddr::local(1);
        let ethernet = Ethernet { src: mac, dst: mac, ethertype: 0x0800 };
        // No checksum: bytes 6 and 7 are zero.
        let byte = |at: usize| if at < 8 { 0 } else { (at * 7 + usize::from(src)) as u8 };
        let mut frame = vec![0; ETHERNET_LEN + IPV4_LEN];
        frame.extend((offset..end).map(byte));
        (Part { ethernet, packet, header }, frame)
    }

    fn take(
        reassembly: &mut Reassembly,
        (part, frame): &(Part, Vec<u8>),
        now: u64,
        drops: &mut Drops,
    ) -> Option<Vec<u8>> {
        let mut scratch = dray_port::scratch();
        reassembly.take((part, &Frame::from(&frame[..])), now, &mut scratch, drops);
        let whole = reassembly.complete()?;
        let frame = whole.frame().to_vec();
        reassembly.give_back(whole);
        Some(frame)
    }

    /// Additional fragment of the first packet of a test.
    #[derive(Clone, Copy, Debug)]
    enum Fault {
        /// These units arrive once more, with the right bytes.
        Again(usize, usize),
        /// A fragment arrives once more, with another byte.
        Changed(usize),
    }

    fn fault() -> impl Strategy<Value = Option<Fault>> {
        prop::option::of(prop_oneof![
            (0usize..250, 1usize..9).prop_map(|(start, len)| Fault::Again(start, len)),
            any::<usize>().prop_map(Fault::Changed),
        ])
    }

    proptest! {
        /// Fragments of several packets, some of them twice or three times, in any order: each
        /// packet completes when all its fragments have arrived, or never if two of them overlap
        /// that are not copies.
        #[test]
        fn packets_are_reassembled_unless_fragments_overlap(
            cuts in prop::collection::vec(prop::collection::btree_set(1usize..250, 0..6), 1..5),
            copies in prop::collection::vec(1usize..4, 24), fault in fault(), seed: u64,
        ) {
            let mut parts = Vec::new();
            let whole = |number: usize| part(number as u8, 7, 0..250, LEN).1[ETHERNET_LEN + IPV4_LEN..].to_vec();
            let mut bounds = Vec::new();
            for (number, cuts) in cuts.iter().enumerate() {
                let ends: Vec<usize> = [0].into_iter().chain(cuts.iter().copied()).chain([250]).collect();
                if ends.len() > 2 {
                    bounds.extend(ends.windows(2).map(|it| (number, it[0]..it[1])));
                }
            }
            for ((number, units), copies) in bounds.iter().zip(copies) {
                let piece = part(*number as u8, 7, units.clone(), LEN);
                parts.extend(std::iter::repeat_n((*number, piece), copies));
            }
            let first: Vec<_> = bounds.iter().filter(|(number, _)| *number == 0).collect();
            let mut is_wrong = false;
            match fault {
                Some(Fault::Again(start, len)) if !first.is_empty() => {
                    let units = start..(start + len).min(250);
                    is_wrong = !first.iter().any(|(_, known)| *known == units);
                    parts.push((0, part(0, 7, units, LEN)));
                }
                Some(Fault::Changed(which)) if !first.is_empty() => {
                    let mut piece = part(0, 7, first[which % first.len()].1.clone(), LEN);
                    *piece.1.last_mut().unwrap() ^= 1;
                    is_wrong = true;
                    parts.push((0, piece));
                }
                _ => {}
            }
            let mut state = seed;
            for index in (1..parts.len()).rev() {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                parts.swap(index, (state >> 33) as usize % (index + 1));
            }
            let (mut reassembly, mut drops) = (Reassembly::new(), Drops::default());
            let mut seen = vec![0; cuts.len()];
            for (number, it) in &parts {
                if let Some(frame) = take(&mut reassembly, it, 1, &mut drops) {
                    let packet = Packet::parse(&frame[ETHERNET_LEN..], frame.len() - ETHERNET_LEN).unwrap();
                    prop_assert_eq!((packet.fragment, packet.len), (ip::Fragment::Whole, LEN + IPV4_LEN));
                    // A wrong copy may come first, or when the packet is complete already: there is
                    // no checksum that would tell.
                    if !(is_wrong && *number == 0) {
                        prop_assert_eq!(&frame[ETHERNET_LEN + IPV4_LEN..], &whole(*number)[..]);
                    }
                    seen[*number] += 1;
                }
            }
            for (number, cuts) in cuts.iter().enumerate().skip(usize::from(is_wrong)) {
                // If all fragments come more than once, the packet may do so as well.
                prop_assert_eq!(seen[number] > 0, !cuts.is_empty());
            }
            let rest: u64 = reassembly.entries.iter().zip(reassembly.tags.iter())
                .filter(|(_, tag)| **tag != 0).map(|(entry, _)| u64::from(entry.fragments)).sum();
            if !is_wrong {
                prop_assert_eq!(drops.total(), drops.get(DropReason::FragmentCopy));
                let of_packets: usize = cuts.iter().zip(&seen).map(|(cuts, seen)| (cuts.len() + 1) * seen).sum();
                prop_assert_eq!(of_packets as u64 + rest + drops.total(), parts.len() as u64);
            }
        }
    }

    /// Any overlap that is not a copy drops the packet, whichever of the two comes first.
    #[test]
    fn overlap_that_is_not_a_copy_drops_the_packet() {
        let copy = |units: Range<usize>| part(1, 7, units, LEN);
        let mut changed = copy(10..20);
        changed.1[ETHERNET_LEN + IPV4_LEN + 3] ^= 1;
        let others = [changed, copy(10..19), copy(11..20), copy(9..20), copy(10..21), copy(9..21)];
        let others =
            others.into_iter().chain([copy(12..15), copy(0..20), copy(0..30), copy(10..250)]);
        for (number, other) in others.enumerate() {
            for other_first in [false, true] {
                let (mut reassembly, mut drops) = (Reassembly::new(), Drops::default());
                let mut pair = [copy(10..20), other.clone()];
                pair.rotate_left(usize::from(other_first));
                let [one, two] = pair;
                let all = [one, two, copy(0..10), copy(20..250)];
                let whole = all.iter().filter_map(|it| take(&mut reassembly, it, 1, &mut drops));
                assert_eq!(whole.count(), 0, "{number} {other_first}");
                assert_eq!(drops.get(DropReason::OuterFragment), 4, "{number} {other_first}");
            }
        }
    }

    /// Neighbouring fragments, one after the other, are not one fragment.
    #[test]
    fn copy_has_the_bounds_of_one_fragment() {
        let (mut reassembly, mut drops) = (Reassembly::new(), Drops::default());
        let mut take = |units: Range<usize>| {
            take(&mut reassembly, &part(1, 7, units, LEN), 1, &mut drops).is_some()
        };
        assert!(!take(0..10) && !take(10..20) && !take(10..20) && !take(0..10));
        assert!(!take(240..250) && !take(240..250), "the last one twice");
        assert!(take(20..240));
        assert_eq!(drops.get(DropReason::FragmentCopy), 3);
        assert_eq!(drops.total(), 3);
    }

    #[test]
    fn incomplete_packets_expire() {
        let (mut reassembly, mut drops) = (Reassembly::new(), Drops::default());
        let lifetime = clock::to_ticks(LIFETIME);
        for now in [1, 2] {
            take(&mut reassembly, &part(now as u8, 7, 0..10, LEN), now, &mut drops);
        }
        reassembly.expire_at(lifetime, &mut drops);
        assert_eq!(drops.total(), 0);
        reassembly.expire_at(lifetime + 1, &mut drops);
        assert_eq!(drops.get(DropReason::FragmentTimeout), 1);
        // The remaining fragments come too late.
        assert!(
            take(&mut reassembly, &part(1, 7, 10..250, LEN), lifetime + 1, &mut drops).is_none()
        );
        assert!(
            take(&mut reassembly, &part(2, 7, 10..250, LEN), lifetime + 1, &mut drops).is_some()
        );
        reassembly.expire_at(3 * lifetime, &mut drops);
        assert_eq!(drops.get(DropReason::FragmentTimeout), 2);
        assert_eq!(reassembly.next_due, u64::MAX);
    }

    #[test]
    fn invalid_fragments_are_dropped() {
        let (mut reassembly, mut drops) = (Reassembly::new(), Drops::default());
        let (right, frame) = part(1, 7, 0..10, LEN);
        let wrong = [
            Part { header: FragmentHeader { protocol: 6, ..right.header }, ..right },
            Part { header: FragmentHeader { offset: 65528, ..right.header }, ..right },
            Part { header: FragmentHeader { header_len: 200, ..right.header }, ..right },
            Part { packet: Packet { len: IPV4_LEN, ..right.packet }, ..right },
            Part { packet: Packet { len: IPV4_LEN + 12, ..right.packet }, ..right },
        ];
        for (number, part) in wrong.into_iter().enumerate() {
            take(&mut reassembly, &(part, frame.clone()), 1, &mut drops);
            assert_eq!(drops.get(DropReason::OuterFragment), number as u64 + 1);
        }
        assert!(reassembly.tags.iter().all(|tag| *tag == 0), "invalid fragments occupy no entry");
    }
}

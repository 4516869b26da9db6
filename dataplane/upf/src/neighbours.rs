//! The neighbours of an interface that packets are sent to: their Ethernet addresses, and the
//! schedule of solicitations.
//!
//! Claims from the network are trusted as little as possible:
//!
//! * A configured neighbour keeps its configured Ethernet address.
//! * Another neighbour is learned only from a reply to an open solicitation.
//! * A known neighbour is solicited now and then, at its own Ethernet address, and keeps that
//!   address for as long as it replies. When another station claims the IP address, the claim is
//!   counted as refused, and the known station is solicited soon: another one is accepted only if
//!   the known one is silent.
//! * A solicitation without a reply is repeated soon. A silent neighbour is solicited less and less
//!   often, but at once when a frame mentions it or a packet has to wait for it, and twice a second
//!   while packets wait.
//! * Other messages and packets only cause a solicitation: Ethernet addresses are learned from
//!   replies alone.
//! * A neighbour without routes and tunnels is removed once no packet waits for it.
//!
//! Neighbours' Ethernet addresses are in memory that outlives the process: the next one sends to
//! them at once, and solicits the neighbours to check them.
//!
//! ```text
//! word n            Ethernet address of neighbour n in the low 48 bits, or 0, or `SILENT`
//! word MAX + 2n     its IP address (two words), the high half first; IPv4 as mapped to IPv6
//! ```

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use dray_shm::SharedWords;
use dray_wire::MacAddr;

use crate::counters::DropReason;
use dray_datapath::lock;

/// Maximum number of neighbours of an interface.
pub(crate) const HOPS_MAX: usize = 16_384;
/// Interval between rounds of solicitations, and from a neighbour's first solicitation to the next
/// one.
pub(crate) const ROUND: Duration = Duration::from_millis(50);
/// Rounds in half a second, the interval between solicitations after the first few. Messages from
/// the network, and packets that wait, cause no more solicitations than one in this time for each
/// neighbour.
const HALF_SECOND: u64 = 10;
/// Number of unanswered solicitations after which a neighbour counts as absent: 3.25 seconds (at
/// least three, as in RFC 4861, section 10).
const SOLICITATIONS: u32 = 9;
/// Rounds from a reply to the next solicitation: 30 seconds.
const CONFIRM: u64 = 60 * HALF_SECOND;
/// Maximum interval between solicitations to a silent neighbour, in half seconds, as a power of
/// two.
const PAUSE_BITS: u32 = 6;
/// Maximum number of solicitations in a round for silent neighbours of an interface: packets to
/// many absent ones must not flood the link.
const SILENT_PER_ROUND: usize = 32;

/// In place of the Ethernet address of a neighbour that has not replied to repeated solicitations.
const SILENT: u64 = 1 << 48;
/// Words of the filter of silent neighbours, a bit for each hash of an address.
const FILTER: usize = 64;
/// Words of the addresses of all neighbours.
const WORDS: usize = 3 * HOPS_MAX;

/// The neighbours of an interface. Data threads read their Ethernet addresses without waiting.
#[derive(Debug)]
pub(crate) struct Neighbours {
    words: SharedWords,
    state: Mutex<State>,
    /// Number of times that an Ethernet address has become known.
    learned: AtomicU64,
    /// Number of packets that wait for each neighbour, and those for all that are not our own
    /// messages.
    waiting: Box<[AtomicU32]>,
    all_waiting: AtomicUsize,
    /// Number of silent neighbours, and their [bits](filter_bit), as of the last round.
    silent: AtomicUsize,
    filter: [AtomicU64; FILTER],
}

#[derive(Debug, Default)]
struct State {
    /// Numbers of hops by address.
    numbers: HashMap<IpAddr, u16>,
    /// Neighbours by number.
    neighbours: Vec<Neighbour>,
    /// Numbers of removed neighbours.
    free: Vec<u16>,
    round: u64,
    /// Number of solicitations for silent neighbours since the round began.
    silent_solicited: usize,
}

#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    is_configured: bool,
    /// Number of routes and tunnels that lead to it.
    users: u32,
    /// Number of session changes that have to be made until no data thread uses it any more, if it
    /// has no users.
    left: u64,
    /// Number of solicitations since its last reply.
    asked: u32,
    /// Round of the last solicitation, if there was one.
    last: Option<u64>,
    /// Round of the next solicitation.
    next: u64,
}

impl Neighbour {
    /// Returns the first round in which a packet or message may cause a solicitation.
    fn soonest(&self) -> u64 {
        self.last.map_or(0, |last| last + HALF_SECOND)
    }

    /// Schedules a solicitation for the next round, or half a second after the previous one.
    fn solicit_soon(&mut self, round: u64) {
        self.next = self.next.min(self.soonest().max(round + 1));
    }
}

/// Returns the number of rounds from a solicitation to the next one, if `asked` solicitations (at
/// least one) have no reply: 50 ms, then twice as long each time, up to half a second; once the
/// neighbour is silent, again twice as long each time.
///
/// Hosts usually repeat a solicitation after a second: that is the default of RetransTimer (RFC
/// 4861, section 7.2.2), Linux has the same for ARP, RFC 1122 (section 2.3.2.1) recommends no
/// higher rate, and RFC 826 leaves it open. Our links are shared memory or a single wire, where a
/// reply takes much less than a millisecond: after 50 ms, it or the solicitation is lost, and until
/// the solicitation is repeated, so are all packets to the neighbour. An absent neighbour is asked
/// three times more than if it were asked every half second from the start.
fn pause(asked: u32) -> u64 {
    let early = (1 << (asked - 1).min(4)).min(HALF_SECOND);
    early << asked.saturating_sub(SOLICITATIONS + 1).min(PAUSE_BITS)
}

/// A solicitation: the IP address to resolve, and the Ethernet address that it is sent to, if
/// known.
pub(crate) type Solicitation = (IpAddr, Option<MacAddr>);

impl Neighbours {
    pub(crate) fn new() -> io::Result<Self> {
        let words = SharedWords::create("dray-neighbours", WORDS)?;
        Ok(Self {
            words,
            state: Mutex::default(),
            learned: AtomicU64::new(0),
            waiting: (0..HOPS_MAX).map(|_| AtomicU32::new(0)).collect(),
            all_waiting: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            filter: [const { AtomicU64::new(0) }; FILTER],
        })
    }

    /// Opens the addresses that another process has written.
    pub(crate) fn open(descriptor: OwnedFd) -> io::Result<SharedWords> {
        let words = SharedWords::of(descriptor)?;
        match words.words().len() {
            WORDS.. => Ok(words),
            len => Err(io::Error::other(format!("{len} of its {WORDS} numbers are there"))),
        }
    }

    /// Continues with the Ethernet addresses that another process has learned, until the neighbours
    /// have replied.
    pub(crate) fn resume(&self, before: &SharedWords) {
        let state = &mut *lock(&self.state);
        for number in 0..HOPS_MAX {
            let Some(mac) = mac(before, number) else { continue };
            let Some(known) = state.numbers.get(&address(before, number)) else { continue };
            let neighbour = &state.neighbours[usize::from(*known)];
            if !neighbour.is_configured && self.mac_of(*known).is_none() {
                self.set(*known, Some(mac));
            }
        }
    }

    /// Returns the number of the neighbour `address`; `None` if there are too many neighbours.
    pub(crate) fn number(&self, address: IpAddr) -> Option<u16> {
        let mut state = lock(&self.state);
        if let Some(number) = state.numbers.get(&address) {
            return Some(*number);
        }
        let next = state.round;
        let (is_configured, last) = (false, None);
        let new = Neighbour { address, is_configured, users: 0, left: 0, asked: 0, last, next };
        let number = match state.free.pop() {
            Some(number) => {
                state.neighbours[usize::from(number)] = new;
                number
            }
            None => {
                let number = state.neighbours.len();
                (number < HOPS_MAX).then_some(())?;
                state.neighbours.push(new);
                number as u16
            }
        };
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        let words = &self.words.words()[HOPS_MAX + 2 * usize::from(number)..];
        words[0].store((bits >> 64) as u64, Relaxed);
        words[1].store(bits as u64, Relaxed);
        state.numbers.insert(address, number);
        Some(number)
    }

    /// Sets the configured Ethernet address of a neighbour.
    pub(crate) fn configure(&self, hop: u16, mac: MacAddr) {
        lock(&self.state).neighbours[usize::from(hop)].is_configured = true;
        self.set(hop, Some(mac));
    }

    /// Adds a route or tunnel that leads to a neighbour.
    pub(crate) fn add_user(&self, hop: u16) {
        lock(&self.state).neighbours[usize::from(hop)].users += 1;
    }

    /// Removes a route or tunnel that leads to a neighbour; effective once all data threads have
    /// made this many `changes`.
    pub(crate) fn remove_user(&self, hop: u16, changes: u64) {
        let neighbour = &mut lock(&self.state).neighbours[usize::from(hop)];
        neighbour.users -= 1;
        neighbour.left = changes;
    }

    /// Removes neighbours without routes, tunnels and waiting packets. All data threads must have
    /// `made` this many changes, and no change may be in preparation.
    pub(crate) fn remove_unused(&self, made: u64) {
        let mut state = lock(&self.state);
        let State { numbers, neighbours, free, .. } = &mut *state;
        numbers.retain(|_, number| {
            let neighbour = &neighbours[usize::from(*number)];
            let is_used = neighbour.users > 0 || neighbour.left > made;
            let stays = neighbour.is_configured || is_used || self.is_awaited(*number);
            if !stays {
                self.set(*number, None);
                free.push(*number);
            }
            stays
        });
    }

    /// Returns the Ethernet address of a hop, if it is known.
    #[inline(always)]
    pub(crate) fn mac_of(&self, hop: u16) -> Option<MacAddr> {
        mac(&self.words, hop.into())
    }

    /// Returns true if a hop has not replied to repeated solicitations.
    pub(crate) fn is_silent(&self, hop: u16) -> bool {
        self.words.words()[usize::from(hop)].load(Relaxed) == SILENT
    }

    /// Returns the number of times that an Ethernet address has become known: unless it has
    /// changed, no packet that waits may leave.
    #[inline(always)]
    pub(crate) fn learned(&self) -> u64 {
        self.learned.load(Acquire)
    }

    /// Returns the number of packets that wait for neighbours, without our own messages.
    pub(crate) fn waiting(&self) -> usize {
        self.all_waiting.load(Relaxed)
    }

    /// Counts a packet that begins to wait for a hop, and may be our own message.
    pub(crate) fn wait(&self, hop: u16, is_own: bool) {
        self.waiting[usize::from(hop)].fetch_add(1, Release);
        self.all_waiting.fetch_add(usize::from(!is_own), Relaxed);
    }

    /// Counts packets, or our own messages, that do not wait for a hop any more.
    pub(crate) fn leave(&self, hop: u16, count: u16, are_own: bool) {
        self.waiting[usize::from(hop)].fetch_sub(count.into(), Release);
        self.all_waiting.fetch_sub(if are_own { 0 } else { count.into() }, Relaxed);
    }

    fn is_awaited(&self, hop: u16) -> bool {
        self.waiting[usize::from(hop)].load(Acquire) > 0
    }

    fn set(&self, hop: u16, mac: Option<MacAddr>) {
        let is_known = mac.is_some();
        let MacAddr([a, b, c, d, e, f]) = mac.unwrap_or(MacAddr([0; 6]));
        let word = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let before = self.words.words()[usize::from(hop)].swap(word, Relaxed);
        if is_known && before != word {
            self.learned.fetch_add(1, Release);
        }
    }

    /// Processes a reply in which a station claims `address`: accepts or refuses it.
    pub(crate) fn process_reply(&self, address: IpAddr, mac: MacAddr) -> Result<(), DropReason> {
        // A data thread does not wait for the lock: a lost reply is repeated after the next
        // solicitation.
        let mut state = self.state.try_lock().map_err(|_| DropReason::Limited)?;
        let round = state.round;
        let Some(number) = state.numbers.get(&address).copied() else { return Ok(()) };
        let neighbour = &mut state.neighbours[usize::from(number)];
        let is_right = match self.mac_of(number) {
            Some(known) => known == mac,
            None => neighbour.asked > 0,
        };
        if !is_right {
            neighbour.solicit_soon(round);
            return Err(DropReason::NeighbourRefused);
        }
        (neighbour.asked, neighbour.next) = (0, round + CONFIRM);
        self.set(number, Some(mac));
        Ok(())
    }

    /// Solicits `address` soon if its Ethernet address is unknown. Called for a packet that is from
    /// the address or mentions it, but is not a reply to a solicitation.
    pub(crate) fn solicit_mentioned(&self, address: IpAddr) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let Some(number) = state.numbers.get(&address).copied() else { return };
        if self.mac_of(number).is_none() {
            let round = state.round;
            let neighbour = &mut state.neighbours[usize::from(number)];
            neighbour.solicit_soon(round);
            // If that reply is lost, the next solicitation comes half a second later.
            neighbour.asked = neighbour.asked.min(SOLICITATIONS);
        }
    }

    /// Returns true if some neighbours were silent in the last round.
    #[inline(always)]
    pub(crate) fn has_silent(&self) -> bool {
        self.silent.load(Relaxed) > 0
    }

    /// Returns false if the address is certainly not that of a silent neighbour.
    pub(crate) fn may_be_silent(&self, address: IpAddr) -> bool {
        let (word, bit) = filter_bit(address);
        self.filter[word].load(Relaxed) & bit != 0
    }

    /// Returns the solicitation to send at once, if there is one, when a packet has to wait for a
    /// hop. Others are sent in [rounds](Self::solicitations).
    pub(crate) fn solicitation_for(&self, hop: u16) -> Option<Solicitation> {
        // A data thread does not wait for the lock: the solicitation comes in the next round.
        let mut state = self.state.try_lock().ok()?;
        let State { neighbours, round, silent_solicited, .. } = &mut *state;
        let neighbour = &mut neighbours[usize::from(hop)];
        if self.mac_of(hop).is_some() || neighbour.soonest() > *round {
            return None;
        }
        if self.is_silent(hop) {
            (*silent_solicited < SILENT_PER_ROUND).then_some(())?;
            *silent_solicited += 1;
        }
        Some(self.solicit(hop, neighbour, *round))
    }

    /// Counts a solicitation and returns it.
    fn solicit(&self, number: u16, neighbour: &mut Neighbour, round: u64) -> Solicitation {
        if neighbour.asked >= SOLICITATIONS {
            self.words.words()[usize::from(number)].store(SILENT, Relaxed);
        }
        neighbour.asked = neighbour.asked.saturating_add(1);
        neighbour.last = Some(round);
        neighbour.next = round + pause(neighbour.asked);
        (neighbour.address, self.mac_of(number))
    }

    /// Cancels a solicitation for which the port had no room: it is repeated in the next round, and
    /// no reply is expected.
    pub(crate) fn withdraw(&self, address: IpAddr) {
        let mut state = lock(&self.state);
        let State { numbers, neighbours, round, .. } = &mut *state;
        if let Some(number) = numbers.get(&address) {
            let neighbour = &mut neighbours[usize::from(*number)];
            neighbour.asked = neighbour.asked.saturating_sub(1);
            (neighbour.last, neighbour.next) = (None, *round + 1);
        }
    }

    /// Sends all solicitations without a reply again in the next round, as if they were new: a peer
    /// has connected, which has not received them.
    pub(crate) fn restart(&self) {
        let mut state = lock(&self.state);
        let open = state.neighbours.iter_mut().filter(|neighbour| neighbour.asked > 0);
        open.for_each(|neighbour| {
            (neighbour.asked, neighbour.last, neighbour.next) = (0, None, 0);
        });
    }

    /// Starts a round and returns its solicitations. Of the silent neighbours, those whose last
    /// solicitation is longest ago come first.
    pub(crate) fn solicitations(&self) -> Vec<Solicitation> {
        let mut state = lock(&self.state);
        state.round += 1;
        let State { numbers, neighbours, round, silent_solicited, .. } = &mut *state;
        let (mut solicitations, mut silent, mut silent_due) = (Vec::new(), 0, Vec::new());
        let mut filter = [0; FILTER];
        for number in numbers.values().copied() {
            let neighbour = &mut neighbours[usize::from(number)];
            let is_silent = self.is_silent(number);
            if is_silent {
                let (word, bit) = filter_bit(neighbour.address);
                filter[word] |= bit;
                silent += 1;
            }
            let is_wanted = self.is_awaited(number)
                && self.mac_of(number).is_none()
                && neighbour.soonest() <= *round;
            if neighbour.is_configured || neighbour.next > *round && !is_wanted {
                continue;
            }
            match is_silent {
                true => silent_due.push((neighbour.last, number)),
                false => solicitations.push(self.solicit(number, neighbour, *round)),
            }
        }
        silent_due.sort_unstable();
        silent_due.truncate(SILENT_PER_ROUND);
        *silent_solicited = silent_due.len();
        solicitations.extend(
            silent_due.into_iter().map(|(_, number)| {
                self.solicit(number, &mut neighbours[usize::from(number)], *round)
            }),
        );
        self.silent.store(silent, Relaxed);
        self.filter.iter().zip(filter).for_each(|(word, bits)| word.store(bits, Relaxed));
        solicitations
    }
}

/// Returns the bit of an address in the filter of silent neighbours: its word, and a mask.
fn filter_bit(address: IpAddr) -> (usize, u64) {
    let number = match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 ^ address.to_bits() as u64,
    };
    // The highest bits of a product depend on all bits of its factors.
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 12);
    ((hash >> 6) as usize % FILTER, 1 << (hash & 63))
}

impl AsFd for Neighbours {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

/// Returns the Ethernet address of a neighbour, if it is known.
#[inline(always)]
fn mac(words: &SharedWords, number: usize) -> Option<MacAddr> {
    let word = words.words()[number].load(Relaxed);
    let [_, _, mac @ ..] = word.to_be_bytes();
    // Neither 0 nor `SILENT`.
    (word.wrapping_sub(1) < SILENT - 1).then_some(MacAddr(mac))
}

/// Returns the IP address of a neighbour.
fn address(words: &SharedWords, number: usize) -> IpAddr {
    let [high, low] = [0, 1].map(|half| words.words()[HOPS_MAX + 2 * number + half].load(Relaxed));
    let bits = u128::from(high) << 64 | u128::from(low);
    Ipv6Addr::from_bits(bits).to_canonical()
}

#[cfg(test)]
mod tests;

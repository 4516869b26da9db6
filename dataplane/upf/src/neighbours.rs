//! The neighbours of an interface that packets are sent to: their Ethernet addresses, and when each
//! is asked for its address.
//!
//! Claims from the network are trusted as little as possible:
//!
//! * A configured neighbour keeps its configured Ethernet address.
//! * Another neighbour is learned only from a reply to an open question.
//! * A known neighbour is asked now and then, at its own Ethernet address, and keeps that address
//!   for as long as it replies. When another station claims the IP address, the claim is counted as
//!   refused, and the known station is asked at once: another one is believed only if the known one
//!   is silent.
//! * A silent neighbour is asked less and less often, and again at once when it is heard of.
//! * A neighbour that no route and no tunnel leads to is forgotten.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use dray_wire::MacAddr;

use crate::counters::DropReason;
use dray_datapath::lock;

/// Maximum number of neighbours of an interface.
pub(crate) const HOPS_MAX: usize = 16_384;
/// Number of unanswered questions, one per round, after which a neighbour counts as absent (three
/// seconds, as in RFC 4861, section 10).
const QUESTIONS: u32 = 6;
/// Rounds from a reply to the next question.
const CONFIRM: u64 = 60;
/// Maximum number of rounds between questions to a silent neighbour, as a power of two.
const PAUSE_BITS: u32 = 6;

/// The neighbours of an interface. Data threads read their Ethernet addresses without waiting.
#[derive(Debug)]
pub(crate) struct Neighbours {
    hops: Box<[Hop]>,
    state: Mutex<State>,
}

/// The part of a neighbour that data threads read.
#[derive(Debug, Default)]
struct Hop {
    /// Ethernet address in the low 48 bits; 0 while it is unknown.
    mac: AtomicU64,
    /// True if it has not replied to repeated questions.
    is_silent: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers of hops by address.
    numbers: HashMap<IpAddr, u16>,
    /// Neighbours by number.
    neighbours: Vec<Neighbour>,
    /// Numbers of forgotten neighbours.
    free: Vec<u16>,
    round: u64,
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
    /// Number of questions since its last reply.
    asked: u32,
    /// Round of the next question.
    next: u64,
}

/// A question: the address that is asked for, and the Ethernet address to ask, if known.
pub(crate) type Question = (IpAddr, Option<MacAddr>);

impl Default for Neighbours {
    fn default() -> Self {
        Self { hops: (0..HOPS_MAX).map(|_| Hop::default()).collect(), state: Mutex::default() }
    }
}

impl Neighbours {
    /// Returns the number of the neighbour `address`; `None` if there are too many neighbours.
    pub(crate) fn number(&self, address: IpAddr) -> Option<u16> {
        let mut state = lock(&self.state);
        if let Some(number) = state.numbers.get(&address) {
            return Some(*number);
        }
        let next = state.round;
        let new = Neighbour { address, is_configured: false, users: 0, left: 0, asked: 0, next };
        let number = match state.free.pop() {
            Some(number) => {
                state.neighbours[usize::from(number)] = new;
                number
            }
            None => {
                let number = state.neighbours.len();
                (number < self.hops.len()).then_some(())?;
                state.neighbours.push(new);
                number as u16
            }
        };
        state.numbers.insert(address, number);
        Some(number)
    }

    /// Sets the configured Ethernet address of a neighbour.
    pub(crate) fn configure(&self, hop: u16, mac: MacAddr) {
        lock(&self.state).neighbours[usize::from(hop)].is_configured = true;
        self.hops[usize::from(hop)].set(Some(mac));
    }

    /// Adds a route or tunnel that leads to a neighbour.
    pub(crate) fn hold(&self, hop: u16) {
        lock(&self.state).neighbours[usize::from(hop)].users += 1;
    }

    /// Removes a route or tunnel that leads to a neighbour; effective once all data threads have
    /// made this many `changes`.
    pub(crate) fn release(&self, hop: u16, changes: u64) {
        let neighbour = &mut lock(&self.state).neighbours[usize::from(hop)];
        neighbour.users -= 1;
        neighbour.left = changes;
    }

    /// Forgets neighbours that nothing leads to any more. All data threads must have `made` this
    /// many changes, and no change may be in preparation.
    pub(crate) fn forget(&self, made: u64) {
        let mut state = lock(&self.state);
        let State { numbers, neighbours, free, .. } = &mut *state;
        numbers.retain(|_, number| {
            let neighbour = &neighbours[usize::from(*number)];
            let stays = neighbour.is_configured || neighbour.users > 0 || neighbour.left > made;
            if !stays {
                self.hops[usize::from(*number)].set(None);
                free.push(*number);
            }
            stays
        });
    }

    /// Returns the Ethernet address of a hop, if it is known.
    #[inline(always)]
    pub(crate) fn mac_of(&self, hop: u16) -> Option<MacAddr> {
        self.hops[usize::from(hop)].mac()
    }

    /// Returns true if a hop has not replied to repeated questions.
    pub(crate) fn is_silent(&self, hop: u16) -> bool {
        self.hops[usize::from(hop)].is_silent.load(Relaxed)
    }

    /// Processes a reply in which a station claims `address`: accepts or refuses it.
    pub(crate) fn answer(&self, address: IpAddr, mac: MacAddr) -> Result<(), DropReason> {
        // A data thread does not wait for the lock: a lost reply is repeated after the next
        // question.
        let mut state = self.state.try_lock().map_err(|_| DropReason::Limited)?;
        let round = state.round;
        let Some(number) = state.numbers.get(&address).copied() else { return Ok(()) };
        let neighbour = &mut state.neighbours[usize::from(number)];
        let hop = &self.hops[usize::from(number)];
        let is_right = match hop.mac() {
            Some(known) => known == mac,
            None => neighbour.asked > 0,
        };
        if !is_right {
            neighbour.next = 0;
            return Err(DropReason::NeighbourRefused);
        }
        (neighbour.asked, neighbour.next) = (0, round + CONFIRM);
        hop.set(Some(mac));
        Ok(())
    }

    /// Asks for `address` in the next round if its Ethernet address is unknown. Called when a
    /// packet mentions the address but is not a reply to a question.
    pub(crate) fn heard_of(&self, address: IpAddr) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let Some(number) = state.numbers.get(&address).copied() else { return };
        if self.mac_of(number).is_none() {
            state.neighbours[usize::from(number)].next = 0;
        }
    }

    /// Starts a round and returns its questions.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let mut state = lock(&self.state);
        state.round += 1;
        let State { numbers, neighbours, round, .. } = &mut *state;
        let mut questions = Vec::new();
        for number in numbers.values() {
            let (neighbour, hop) =
                (&mut neighbours[usize::from(*number)], &self.hops[usize::from(*number)]);
            if neighbour.is_configured || neighbour.next > *round {
                continue;
            }
            neighbour.asked = neighbour.asked.saturating_add(1);
            let bits = neighbour.asked.saturating_sub(QUESTIONS + 1).min(PAUSE_BITS);
            neighbour.next = *round + (1 << bits);
            if neighbour.asked > QUESTIONS {
                hop.set(None);
                hop.is_silent.store(true, Relaxed);
            }
            questions.push((neighbour.address, hop.mac()));
        }
        questions
    }
}

impl Hop {
    #[inline(always)]
    fn mac(&self) -> Option<MacAddr> {
        let [0, 0, mac @ ..] = self.mac.load(Relaxed).to_be_bytes() else { return None };
        (mac != [0; 6]).then_some(MacAddr(mac))
    }

    fn set(&self, mac: Option<MacAddr>) {
        let MacAddr([a, b, c, d, e, f]) = mac.unwrap_or(MacAddr([0; 6]));
        self.mac.store(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Relaxed);
        self.is_silent.store(false, Relaxed);
    }
}

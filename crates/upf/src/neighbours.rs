//! The neighbours of an interface that packets are sent to: which Ethernet address each has, and when each
//! is asked for it.
//!
//! What the network says is believed as little as packets can do with:
//!
//! * A neighbour of the configuration keeps the Ethernet address that is given there.
//! * Another one is learned only from an answer to a question that is open.
//! * One that is known is asked now and then, at its own Ethernet address, and keeps that for as long as it
//!   answers. When another station claims the IP address, that is counted as refused, and the known
//!   station is asked at once: another one is believed only where the known one is silent.
//! * A silent neighbour is asked less and less often, and again at once when it is heard of.
//! * A neighbour that no route and no tunnel leads to is forgotten.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use dray_wire::MacAddr;

use crate::counters::DropReason;
use crate::interface::lock;

/// Neighbours of an interface.
pub(crate) const HOPS_MAX: usize = 16_384;
/// After so many questions without an answer, a round each, a neighbour counts as not there (as long as in
/// RFC 4861, section 10: three seconds).
const QUESTIONS: u32 = 6;
/// Rounds from an answer to the next question.
const CONFIRM: u64 = 60;
/// Rounds between questions to a silent neighbour: up to two to the power of this.
const PAUSE_BITS: u32 = 6;

/// The neighbours. Data threads read their Ethernet addresses, and wait for nobody.
#[derive(Debug)]
pub(crate) struct Neighbours {
    hops: Box<[Hop]>,
    state: Mutex<State>,
}

/// What data threads look at.
#[derive(Debug, Default)]
struct Hop {
    /// The Ethernet address in the low 48 bits; 0 while it is not known.
    mac: AtomicU64,
    /// Whether it was asked for again and again, and did not answer.
    is_silent: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// By address, the number of the hop.
    numbers: HashMap<IpAddr, u16>,
    /// By number.
    neighbours: Vec<Neighbour>,
    /// Numbers of neighbours that are forgotten.
    free: Vec<u16>,
    round: u64,
}

#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    is_configured: bool,
    /// Routes and tunnels that lead to it.
    users: u32,
    /// How many changes of sessions have to be made until no data thread knows of it any more, where it
    /// has no users.
    left: u64,
    /// Questions since it answered last.
    asked: u32,
    /// The round of the next question.
    next: u64,
}

/// A question: for whom, and of whom, where that is known.
pub(crate) type Question = (IpAddr, Option<MacAddr>);

impl Default for Neighbours {
    fn default() -> Self {
        Self { hops: (0..HOPS_MAX).map(|_| Hop::default()).collect(), state: Mutex::default() }
    }
}

impl Neighbours {
    /// The number of the neighbour `address`; `None` where there are too many.
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

    /// Says what the configuration says of a neighbour.
    pub(crate) fn configure(&self, hop: u16, mac: MacAddr) {
        lock(&self.state).neighbours[usize::from(hop)].is_configured = true;
        self.hops[usize::from(hop)].set(Some(mac));
    }

    /// One more route or tunnel leads to a neighbour.
    pub(crate) fn hold(&self, hop: u16) {
        lock(&self.state).neighbours[usize::from(hop)].users += 1;
    }

    /// One less does, once all data threads have made so many changes.
    pub(crate) fn release(&self, hop: u16, changes: u64) {
        let neighbour = &mut lock(&self.state).neighbours[usize::from(hop)];
        neighbour.users -= 1;
        neighbour.left = changes;
    }

    /// Forgets those that nothing leads to any more; all data threads have `made` so many changes, and no
    /// change is being prepared.
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

    /// A hop's Ethernet address, where that is known.
    #[inline(always)]
    pub(crate) fn mac_of(&self, hop: u16) -> Option<MacAddr> {
        self.hops[usize::from(hop)].mac()
    }

    /// Whether a hop was asked for again and again, and did not answer.
    pub(crate) fn is_silent(&self, hop: u16) -> bool {
        self.hops[usize::from(hop)].is_silent.load(Relaxed)
    }

    /// A station answers that it has `address`: it is believed, or refused.
    pub(crate) fn answer(&self, address: IpAddr, mac: MacAddr) -> Result<(), DropReason> {
        // Whoever asks next is answered as well: a data thread does not wait.
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

    /// Somebody seems to have `address`, but that was no answer: it is asked at once, where it is not known.
    pub(crate) fn heard_of(&self, address: IpAddr) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let Some(number) = state.numbers.get(&address).copied() else { return };
        if self.mac_of(number).is_none() {
            state.neighbours[usize::from(number)].next = 0;
        }
    }

    /// The questions of another round.
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

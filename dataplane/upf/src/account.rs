//! Accounts: what a session may use and has used. An account has a rate and a counter for one
//! direction on one cache line, shared by all workers of the direction and the control threads.
//!
//! Most sessions have at most one rate and one usage rule. Their accounts lie in an array indexed
//! by session number, so a packet's line can be prefetched as soon as its session is known. Other
//! sessions also have [`Spare`] accounts.
//!
//! An account belongs to the same rules for as long as any data thread may use it. Packets are thus
//! counted in the right account even while only some threads have adopted a changed session: a rule
//! that stays keeps its account, a new rule gets another one, and the number of a removed session
//! is reused only after all threads have let go of it.

use std::sync::Arc;

use dray_port::prefetch;
use dray_shm::vec_in_huge_pages;
use dray_wire::gtpu::Direction;

use crate::meter::Meter;
use crate::usage::Counter;
/// Rate and counter of one direction.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Account {
    pub(crate) meter: Meter,
    pub(crate) counter: Counter,
}

const _: () = assert!(size_of::<Account>() == 64);

impl Account {
    fn clear(&self) {
        self.meter.clear();
        self.counter.clear();
    }
}

/// Accounts of both directions, for rules that a session has besides the first.
pub(crate) type Spare = [Account; 2];

/// Accounts of all sessions: each session's first rate and first usage rule.
pub(crate) struct Accounts([Vec<Account>; 2]);

impl Accounts {
    /// Creates accounts for sessions with numbers below `count`.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self([(), ()].map(|()| {
            let mut accounts = vec_in_huge_pages(count);
            accounts.resize_with(count, Account::default);
            accounts
        })))
    }

    /// Returns the account of one direction of a session.
    #[inline(always)]
    pub(crate) fn of(&self, direction: Direction, slot: u32) -> &Account {
        &self.0[direction as usize][slot as usize]
    }

    /// Prefetches the line of one direction of a session.
    #[inline(always)]
    pub(crate) fn prefetch(&self, direction: Direction, slot: u32) {
        prefetch(self.of(direction, slot));
    }

    /// Resets the accounts of a session.
    pub(crate) fn clear(&self, slot: u32) {
        self.0.iter().for_each(|accounts| accounts[slot as usize].clear());
    }
}

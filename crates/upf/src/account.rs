//! What a session may use and has used: a rate and a count for each direction, on one cache line, that
//! all data threads of the direction and control threads share.
//!
//! Most sessions have no more than one rate and one usage rule: theirs lie in an array by the session's
//! number, so that a packet's line can be asked for as soon as its session is known. Others have
//! [`Spare`] accounts besides.
//!
//! An account belongs to the same rules for as long as any data thread may use it. So packets are
//! counted where they belong, also while some threads have a changed session already and others have
//! not: rules that stay keep their account, new ones get another, and the number of a session that is
//! gone is given away again only once all threads have let go of it.

use std::sync::Arc;

use dray_port::prefetch;
use dray_shm::vec_in_huge_pages;

use crate::meter::Meter;
use crate::usage::{Counter, Way};

/// Of one direction.
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

/// Of rules that a session has besides the first.
pub(crate) type Spare = [Account; 2];

/// The accounts of all sessions: those of their first rate and their first usage rule.
pub(crate) struct Accounts([Vec<Account>; 2]);

impl Accounts {
    /// For sessions with numbers below `count`.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self([(), ()].map(|()| {
            let mut accounts = vec_in_huge_pages(count);
            accounts.resize_with(count, Account::default);
            accounts
        })))
    }

    /// That of one direction of a session.
    #[inline(always)]
    pub(crate) fn of(&self, way: Way, slot: u32) -> &Account {
        &self.0[way as usize][slot as usize]
    }

    /// Asks for the line of one direction of a session.
    #[inline(always)]
    pub(crate) fn prefetch(&self, way: Way, slot: u32) {
        prefetch(self.of(way, slot));
    }

    /// Makes those of a session as new.
    pub(crate) fn clear(&self, slot: u32) {
        self.0.iter().for_each(|accounts| accounts[slot as usize].clear());
    }
}

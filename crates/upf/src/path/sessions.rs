//! The sessions as one data thread has them. They belong to it alone.
//!
//! A session changes as a whole: a control thread makes the new one ready and sends it, and the data
//! thread puts it in the place of the old one between two batches. So packets wait for no lock, no
//! memory has to be kept for readers that may still look at it, and a change costs the data thread
//! about as much as a packet, however many sessions there are. What the thread takes out it sends
//! back, for the memory to be given back elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use dray_port::prefetch;
use dray_shm::vec_in_huge_pages;
use smallvec::SmallVec;

use crate::account::Accounts;
use crate::session::Session;
use crate::table::Table;
use crate::usage::Way;

/// Changes that are made between two batches at most, so that packets do not wait for long.
pub(crate) const CHANGES: usize = 32;

/// One session is put in the place of another.
#[derive(Clone)]
pub(crate) struct Change {
    /// Its number.
    pub(crate) slot: u32,
    /// Keys that do not lead to it any more.
    pub(crate) remove: SmallVec<[u64; 2]>,
    /// Keys that lead to it now.
    pub(crate) insert: SmallVec<[u64; 2]>,
    /// The session; the default: none.
    pub(crate) session: Box<Session>,
    /// End markers into the tunnels that are left.
    pub(crate) farewell: Option<Arc<Farewell>>,
}

/// Frames to be transmitted once no data thread uses a session as it was any more.
pub(crate) struct Farewell {
    frames: Vec<Vec<u8>>,
    /// Threads that do still.
    left: AtomicUsize,
}

impl Farewell {
    /// The last of so many threads transmits them.
    pub(crate) fn new(frames: Vec<Vec<u8>>, threads: usize) -> Self {
        Self { frames, left: AtomicUsize::new(threads) }
    }

    /// What a thread that lets go of the session is to transmit.
    pub(super) fn frames(&self) -> &[Vec<u8>] {
        match self.left.fetch_sub(1, Ordering::AcqRel) {
            1 => &self.frames,
            _ => &[],
        }
    }
}

/// The data thread's end of the channels.
pub(crate) struct Changes {
    pub(crate) wanted: Receiver<Change>,
    pub(crate) done: SyncSender<Change>,
    /// How many were made so far.
    pub(crate) made: Arc<AtomicU64>,
}

pub(crate) struct Sessions {
    pub(super) table: Table,
    pub(super) slots: Vec<Session>,
    pub(super) accounts: Arc<Accounts>,
    /// Whether any session there ever was had a rate, a usage reporting rule, or more than the usual:
    /// where none had, lines for these need not be fetched.
    has_accounts: bool,
    has_more: bool,
}

impl Sessions {
    /// With room for so many.
    pub(crate) fn new(sessions: usize, keys: usize, accounts: Arc<Accounts>) -> Self {
        let (table, slots) = (Table::new(keys), vec_in_huge_pages(sessions));
        Self { table, slots, accounts, has_accounts: false, has_more: false }
    }

    /// Asks for the lines of a session that packets of `way` need.
    #[inline(always)]
    pub(super) fn prefetch(&self, way: Way, slot: u32) {
        let session = &self.slots[slot as usize];
        prefetch(session);
        if way == Way::Downlink || self.has_more {
            prefetch(&session.tunnels);
        }
        if self.has_accounts {
            self.accounts.prefetch(way, slot);
        }
    }

    /// Asks for what lies behind pointers of the sessions in `slots`.
    #[inline(always)]
    pub(super) fn prefetch_more(&self, way: Way, slots: impl Iterator<Item = u32>) {
        if self.has_more {
            slots.for_each(|slot| self.slots[slot as usize].prefetch_more(way));
        }
    }

    /// Makes a change; what was there before is in it afterwards.
    pub(crate) fn apply(&mut self, change: &mut Change) {
        let slot = change.slot as usize;
        if slot >= self.slots.len() {
            // There was room from the start: nothing moves.
            self.slots.resize_with(slot + 1, Session::default);
        }
        change.remove.iter().for_each(|key| self.table.remove(*key));
        for key in &change.insert {
            let fits = self.table.insert(*key, change.slot);
            debug_assert!(fits.is_ok(), "whoever sends changes counts the keys");
        }
        self.has_accounts |= change.session.has_accounts();
        self.has_more |= change.session.has_more();
        change.session.waiting = self.slots[slot].waiting;
        std::mem::swap(&mut self.slots[slot], &mut *change.session);
    }
}

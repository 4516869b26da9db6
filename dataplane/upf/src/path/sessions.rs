//! The sessions of one worker, which no other thread accesses.
//!
//! A session changes as a whole: a control thread compiles the new session and sends it, and the
//! worker swaps it for the old one between two batches. Packets thus wait for no lock, no memory
//! has to be kept for concurrent readers, and a change costs the worker about as much as a packet,
//! however many sessions there are. The worker sends the old session back, so that its memory is
//! freed elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use dray_port::prefetch;
use dray_shm::vec_in_huge_pages;
use dray_wire::gtpu::Direction;
use smallvec::SmallVec;

use crate::account::Accounts;
use crate::session::Session;
use crate::table::Table;

/// Maximum number of changes applied between two batches, so that packets do not wait for long.
pub(crate) const CHANGES: usize = 32;

/// Replacement of one session by another.
#[derive(Clone)]
pub(crate) struct Change {
    /// Number of the session.
    pub(crate) slot: u32,
    /// Keys that no longer lead to the session.
    pub(crate) remove: SmallVec<[u64; 2]>,
    /// Keys that now lead to the session.
    pub(crate) insert: SmallVec<[u64; 2]>,
    /// The new session; the default removes it.
    pub(crate) session: Box<Session>,
    /// True if it changes rates.
    pub(crate) rates_change: bool,
    /// End markers for the tunnels that the session leaves.
    pub(crate) end_markers: Option<Arc<EndMarkers>>,
}

/// End markers, to be transmitted once no worker uses the old state of a session any more: frames
/// whose destination is still 0, each with its next hop.
pub(crate) struct EndMarkers {
    frames: Vec<(u16, Vec<u8>)>,
    /// Number of workers that still use it.
    left: AtomicUsize,
}

impl EndMarkers {
    /// Creates end markers that the last of `threads` workers transmits.
    pub(crate) fn new(frames: Vec<(u16, Vec<u8>)>, threads: usize) -> Self {
        Self { frames, left: AtomicUsize::new(threads) }
    }

    /// Returns the frames to be transmitted by a worker that has replaced its copy of the session.
    pub(super) fn frames(&self) -> &[(u16, Vec<u8>)] {
        match self.left.fetch_sub(1, Ordering::AcqRel) {
            1 => &self.frames,
            _ => &[],
        }
    }
}

/// The worker's end of the channels.
pub(crate) struct Changes {
    pub(crate) wanted: Receiver<Change>,
    pub(crate) done: SyncSender<Change>,
    /// Number of changes made so far.
    pub(crate) made: Arc<AtomicU64>,
}

pub(crate) struct Sessions {
    pub(super) table: Table,
    pub(super) slots: Vec<Session>,
    pub(super) accounts: Arc<Accounts>,
    /// True if any session has ever had a rate or usage rule, and if any has ever needed its
    /// second line on the uplink. Otherwise these lines need not be prefetched.
    has_accounts: bool,
    has_more: bool,
}

impl Sessions {
    /// Creates room for `sessions` sessions with `keys` keys.
    pub(crate) fn new(sessions: usize, keys: usize, accounts: Arc<Accounts>) -> Self {
        let (table, slots) = (Table::new(keys), vec_in_huge_pages(sessions));
        Self { table, slots, accounts, has_accounts: false, has_more: false }
    }

    /// Prefetches the lines of a session that packets of `direction` need.
    #[inline(always)]
    pub(super) fn prefetch(&self, direction: Direction, slot: u32) {
        let session = &self.slots[slot as usize];
        prefetch(session);
        if direction == Direction::Downlink || self.has_more {
            prefetch(&session.tunnels);
        }
        if self.has_accounts {
            self.accounts.prefetch(direction, slot);
        }
    }

    /// Prefetches what the pointers of the sessions in `slots` point to.
    #[inline(always)]
    pub(super) fn prefetch_more(&self, direction: Direction, slots: impl Iterator<Item = u32>) {
        if self.has_more {
            let (of, accounts) = (&self.slots, &self.accounts);
            slots.for_each(|slot| of[slot as usize].prefetch_more(direction, accounts));
        }
    }

    /// Applies a change; afterwards `change` contains the old session.
    pub(crate) fn apply(&mut self, change: &mut Change) {
        let slot = change.slot as usize;
        if slot >= self.slots.len() {
            // The capacity was reserved at the start, so nothing moves.
            self.slots.resize_with(slot + 1, Session::default);
        }
        change.remove.iter().for_each(|key| self.table.remove(*key));
        for key in &change.insert {
            let fits = self.table.insert(*key, change.slot);
            debug_assert!(fits.is_ok(), "the model counts keys before it sends changes");
        }
        self.has_accounts |= change.session.has_accounts();
        self.has_more |= change.session.has_more();
        change.session.waiting = self.slots[slot].waiting;
        std::mem::swap(&mut self.slots[slot], &mut *change.session);
    }
}

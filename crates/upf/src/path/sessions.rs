//! The sessions of one direction. They belong to its data thread alone.
//!
//! A session changes as a whole: a control thread makes the new one ready and sends it, and the data
//! thread puts it in the place of the old one between two batches. So packets wait for no lock, no
//! memory has to be kept for readers that may still look at it, and a change costs the data thread
//! about as much as a packet, however many sessions there are. What the thread takes out it sends
//! back, for the memory to be given back elsewhere.

use std::sync::mpsc::{Receiver, SyncSender};

use dray_port::prefetch;
use dray_shm::vec_in_huge_pages;
use smallvec::SmallVec;

use crate::session::Session;
use crate::table::Table;
use crate::usage::Way;

/// Changes that are made between two batches at most, so that packets do not wait for long.
pub(super) const CHANGES: usize = 32;

/// One session is put in the place of another.
pub(crate) struct Change {
    /// Its number.
    pub(crate) slot: u32,
    /// Keys that do not lead to it any more.
    pub(crate) remove: SmallVec<[u64; 2]>,
    /// Keys that lead to it now.
    pub(crate) insert: SmallVec<[u64; 2]>,
    /// The session; the default: none.
    pub(crate) session: Box<Session>,
    /// Frames that are to be transmitted first: end markers into the tunnels that are left.
    pub(crate) farewell: Vec<Vec<u8>>,
}

/// The data thread's end of the channels.
pub(crate) struct Changes {
    pub(crate) wanted: Receiver<Change>,
    pub(crate) done: SyncSender<Change>,
}

pub(crate) struct Sessions {
    pub(super) table: Table,
    pub(super) slots: Vec<Session>,
    /// Whether any session there ever was had a rate, a usage reporting rule, or more than the usual:
    /// where none had, lines for these need not be fetched.
    has_meters: bool,
    has_usages: bool,
    has_more: bool,
}

impl Sessions {
    /// With room for so many.
    pub(crate) fn new(sessions: usize, keys: usize) -> Self {
        let (table, slots) = (Table::new(keys), vec_in_huge_pages(sessions));
        Self { table, slots, has_meters: false, has_usages: false, has_more: false }
    }

    /// Asks for the lines of a session that packets of `way` need.
    #[inline(always)]
    pub(super) fn prefetch(&self, way: Way, slot: u32) {
        let session = &self.slots[slot as usize];
        prefetch(session);
        if way == Way::Downlink || self.has_meters {
            prefetch(&session.tunnels);
        }
        if self.has_more {
            prefetch(&session.conditions);
        }
    }

    /// Asks for what lies behind pointers of the sessions in `slots`.
    #[inline(always)]
    pub(super) fn prefetch_usages(&self, way: Way, slots: impl Iterator<Item = u32>) {
        if self.has_usages {
            slots.for_each(|slot| self.slots[slot as usize].prefetch_usages(way));
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
        self.has_meters |= !change.session.meters.is_empty();
        self.has_usages |= change.session.usage.is_some();
        self.has_more |= change.session.has_more();
        change.session.go_on(&self.slots[slot]);
        std::mem::swap(&mut self.slots[slot], &mut *change.session);
    }
}

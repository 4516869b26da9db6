//! Accounts: limits and usage of sessions. An account has a rate and a counter for one
//! direction on one cache line, shared by all workers of the direction and the control threads.
//!
//! Most sessions have at most one rate and one usage rule. Their accounts are those with the
//! session's number, so a packet's line can be prefetched as soon as its session is known. Other
//! sessions also have [`Spare`] accounts.
//!
//! An account belongs to the same rules for as long as any data thread may use it. Packets are thus
//! counted in the right account even while only some threads have adopted a changed session: a rule
//! that stays keeps its account, a new rule gets another one, and the number of a removed session
//! is reused only after all threads have adopted the removal.
//!
//! The memory outlives the process: the next one continues the accounts
//! ([`recorder`](crate::recorder)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use dray_datapath::lock;
use dray_port::prefetch;
use dray_shm::SharedWords;
use dray_wire::gtpu::Direction;

use crate::meter::Meter;
use crate::usage::Counter;

/// Words of an account: a cache line.
const LINE: usize = 8;
/// Number of spare accounts that there is room for: this many per session, and for some sessions as
/// many as a session may have. Memory is used by those that have been given to a rule.
const SPARES_PER_SESSION: usize = 4;
const SPARES_MAX: usize = 240;
const LARGE_SESSIONS: usize = 4096;

/// Rate and counter of one direction.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    pub(crate) meter: Meter<'a>,
    pub(crate) counter: Counter<'a>,
}

impl<'a> From<&'a [AtomicU64; LINE]> for Account<'a> {
    #[inline(always)]
    fn from(line: &'a [AtomicU64; LINE]) -> Self {
        let [cost, depth, due, octets, packets, closer, next, next_sum] = line;
        Self {
            meter: Meter { cost, depth, due },
            counter: Counter { octets, packets, closer, next, next_sum },
        }
    }
}

/// Accounts of all sessions, in pairs, one for each direction: each session's first rate and first
/// usage rule, then spare ones.
pub(crate) struct Accounts {
    words: SharedWords,
    /// Number of pairs.
    count: usize,
    spares: Mutex<Spares>,
}

/// Spare accounts that were returned, and the number of the next one that was never used.
struct Spares {
    free: Vec<u32>,
    next: usize,
}

impl Spares {
    /// Takes one whose number is below `count`.
    fn take(&mut self, count: usize) -> Option<u32> {
        self.free.pop().or_else(|| {
            let number = (self.next < count).then_some(self.next as u32)?;
            self.next += 1;
            Some(number)
        })
    }
}

/// Accounts for rules that a session has besides the first. They are free again when this value is
/// dropped.
pub(crate) struct Spare {
    /// Number of the accounts.
    pub(crate) number: u32,
    accounts: Arc<Accounts>,
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spare({})", self.number)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        lock(&self.accounts.spares).free.push(self.number);
    }
}

impl Accounts {
    /// Creates accounts for sessions with numbers below `sessions`.
    pub(crate) fn new(sessions: usize) -> io::Result<Arc<Self>> {
        let spares = SPARES_PER_SESSION * sessions + SPARES_MAX * sessions.min(LARGE_SESSIONS);
        let count = sessions + spares;
        let words = SharedWords::create("dray-accounts", 2 * count * LINE)?;
        let spares = Mutex::new(Spares { free: Vec::new(), next: sessions });
        Ok(Arc::new(Self { words, count, spares }))
    }

    /// Opens the accounts of a process that has ended.
    pub(crate) fn open(descriptor: OwnedFd) -> io::Result<Self> {
        let words = SharedWords::of(descriptor)?;
        let count = words.words().len() / LINE / 2;
        let spares = Mutex::new(Spares { free: Vec::new(), next: count });
        Ok(Self { words, count, spares })
    }

    /// Returns true if there are accounts with this number.
    pub(crate) fn has(&self, number: u32) -> bool {
        (number as usize) < self.count
    }

    #[inline(always)]
    fn line(&self, direction: Direction, number: u32) -> &[AtomicU64; LINE] {
        let (lines, _) = self.words.words().as_chunks();
        &lines[direction as usize * self.count + number as usize]
    }

    /// Returns the account of one direction, by its number: that of a session, or of a [`Spare`].
    #[inline(always)]
    pub(crate) fn of(&self, direction: Direction, number: u32) -> Account<'_> {
        self.line(direction, number).into()
    }

    /// Prefetches the line of one direction.
    #[inline(always)]
    pub(crate) fn prefetch(&self, direction: Direction, number: u32) {
        prefetch(self.line(direction, number));
    }

    /// Resets accounts.
    pub(crate) fn clear(&self, number: u32) {
        for direction in Direction::ALL {
            let Account { meter, counter } = self.of(direction, number);
            meter.clear();
            counter.clear();
        }
    }

    /// Returns spare accounts that have counted nothing, if there are any left.
    pub(crate) fn spare(self: &Arc<Self>) -> Option<Arc<Spare>> {
        let number = lock(&self.spares).take(self.count)?;
        self.clear(number);
        Some(Arc::new(Spare { number, accounts: self.clone() }))
    }
}

impl AsFd for Accounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

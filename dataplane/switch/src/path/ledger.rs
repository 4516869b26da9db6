//! Published counters of a port, in memory that outlives the process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use dray_shm::SharedWords;

use crate::counters::Counters;

/// Words of an account: a whole number of cache lines, since threads write theirs at any time.
const WORDS: usize = Counters::WORDS.next_multiple_of(8);

/// Accounts of a port, whose sum is what it has counted. Each is written by one thread at a time.
/// Numbers are consistent by themselves, but may be from slightly different moments.
pub(super) struct Ledger(SharedWords);

/// An account.
#[derive(Clone, Copy)]
pub(super) enum Account {
    /// Of a switch before.
    Before,
    /// Frames that never reached a worker.
    Lost,
    Worker(usize),
}

impl Ledger {
    pub(super) fn new(workers: usize) -> io::Result<Self> {
        Ok(Self(SharedWords::create("dray-counters", WORDS * (2 + workers))?))
    }

    fn words(&self, account: Account) -> &[AtomicU64] {
        let number = match account {
            Account::Before => 0,
            Account::Lost => 1,
            Account::Worker(worker) => 2 + worker,
        };
        &self.0.words()[number * WORDS..][..WORDS]
    }

    pub(super) fn set(&self, account: Account, counters: &Counters) {
        counters.store(self.words(account));
    }

    /// Returns the sum of all accounts.
    pub(super) fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        self.0.words().chunks_exact(WORDS).for_each(|words| sum += &Counters::load(words));
        sum
    }

    /// Returns what a port has counted in another process, whose ledger this is.
    pub(super) fn past(descriptor: OwnedFd) -> io::Result<Counters> {
        Ok(Self(SharedWords::of(descriptor)?).sum())
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_ledger_has_the_sum() {
        let ledger = Ledger::new(2).unwrap();
        let some = |rx_frames| Counters { rx_frames, ..Counters::default() };
        ledger.set(Account::Before, &some(100));
        ledger.set(Account::Worker(0), &some(7));
        ledger.set(Account::Worker(1), &some(20));
        ledger.set(Account::Worker(1), &some(30));
        let file = ledger.as_fd().try_clone_to_owned().unwrap();
        drop(ledger);
        assert_eq!(Ledger::past(file).unwrap(), some(137));
    }
}

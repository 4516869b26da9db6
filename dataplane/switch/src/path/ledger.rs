//! Accounts of a port's [`Ledger`](crate::counters::Ledger).

/// Account of a switch before.
pub(super) const BEFORE: usize = 0;
/// Account of frames that never reached a worker.
pub(super) const LOST: usize = 1;

/// Returns the account of a worker; for the number of workers, the number of accounts.
pub(super) const fn worker(number: usize) -> usize {
    2 + number
}

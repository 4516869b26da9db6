//! Signals between threads and processes: event descriptors, those of untrusted peers, and the
//! wake-up of control threads.

mod aio;
pub(crate) mod control_wake;
pub(crate) mod event;
pub(crate) mod peer_event;

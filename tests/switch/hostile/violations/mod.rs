//! The violations, grouped by subject.

mod chains;
mod descriptors;
mod events;
mod files;
mod frames;
mod handshake;
mod memif;
mod messages;
mod packed;
mod regions;
mod rings;
mod storms;

use super::{Client, Violation};

/// Returns the violations of a memif client.
pub fn memif() -> impl Iterator<Item = &'static Violation<Client>> {
    memif::VIOLATIONS.iter()
}

/// Returns all violations of a driver.
pub fn all() -> impl Iterator<Item = &'static Violation> {
    let groups = [
        // The one that takes longest comes first.
        messages::SILENCE,
        descriptors::VIOLATIONS,
        chains::VIOLATIONS,
        packed::VIOLATIONS,
        frames::VIOLATIONS,
        rings::VIOLATIONS,
        regions::VIOLATIONS,
        files::VIOLATIONS,
        events::VIOLATIONS,
        messages::VIOLATIONS,
        handshake::VIOLATIONS,
        storms::VIOLATIONS,
    ];
    groups.into_iter().flatten()
}

//! The lies, grouped by subject.

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

use super::{Client, Lie};

/// Returns the lies of a memif client.
pub fn memif() -> impl Iterator<Item = &'static Lie<Client>> {
    memif::LIES.iter()
}

/// Returns all lies of a driver.
pub fn all() -> impl Iterator<Item = &'static Lie> {
    let groups = [
        // The one that takes longest comes first.
        messages::SILENCE,
        descriptors::LIES,
        chains::LIES,
        packed::LIES,
        frames::LIES,
        rings::LIES,
        regions::LIES,
        files::LIES,
        events::LIES,
        messages::LIES,
        handshake::LIES,
        storms::LIES,
    ];
    groups.into_iter().flatten()
}

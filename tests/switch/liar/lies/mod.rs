//! The lies, grouped by subject.

mod chains;
mod descriptors;
mod events;
mod files;
mod frames;
mod handshake;
mod messages;
mod packed;
mod regions;
mod rings;
mod storms;

use super::Lie;

/// Returns all lies.
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

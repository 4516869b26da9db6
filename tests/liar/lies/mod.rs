//! The lies, by what they are about.

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

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Lie> {
    let groups = [
        // First the one that takes longest.
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

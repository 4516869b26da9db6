//! Arrangements of the roles.

use dray_results::UpfLoad;

/// Arrangement of the roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Sender, this number of forwarders in a chain, receiver.
    Chain(usize),
    /// Sender, this number of forwarders side by side, receiver. The sender's bursts rotate through
    /// the forwarders.
    Fan(usize),
    /// A ping, and an echo that sends frames back.
    Echo,
    /// Number of concurrent sender/receiver pairs; their links share one segment.
    Pairs(usize),
    /// Sender, a user plane function that encapsulates or decapsulates packets, receiver.
    Upf(UpfLoad),
}

impl Shape {
    /// Number of forwarders.
    pub fn forwarders(self) -> usize {
        match self {
            Self::Chain(count) | Self::Fan(count) => count,
            Self::Upf(_) => 1,
            Self::Echo | Self::Pairs(_) => 0,
        }
    }

    /// Number of senders.
    pub fn pairs(self) -> usize {
        match self {
            Self::Pairs(count) => count,
            Self::Chain(_) | Self::Fan(_) | Self::Echo | Self::Upf(_) => 1,
        }
    }
}

//! Arrangements of the roles.

use dray_results::{PortLoad, Traffic, UpfLoad};

use crate::technique::Technique;

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
    /// Sender and receiver, each with half of the active ports of one switch, and a role that keeps
    /// the other ports connected and is silent.
    Ports(PortLoad),
}

impl Shape {
    /// Number of roles besides the senders and receivers.
    pub fn forwarders(self) -> usize {
        match self {
            Self::Chain(count) | Self::Fan(count) => count,
            Self::Upf(_) => 1,
            Self::Ports(load) => usize::from(load.silent() > 0),
            Self::Echo | Self::Pairs(_) => 0,
        }
    }

    /// Returns true if the shape can be measured with `technique`: a switch that joins ports in
    /// pairs, regardless of addresses, has neither traffic between all ports nor stations.
    pub(crate) fn suits(self, technique: Technique) -> bool {
        match self {
            Self::Ports(load) if !technique.link.learns => {
                load.traffic == Traffic::Pairs && load.stations == 1
            }
            _ => true,
        }
    }

    /// Number of senders.
    pub fn pairs(self) -> usize {
        match self {
            Self::Pairs(count) => count,
            Self::Chain(_) | Self::Fan(_) | Self::Echo | Self::Upf(_) | Self::Ports(_) => 1,
        }
    }
}

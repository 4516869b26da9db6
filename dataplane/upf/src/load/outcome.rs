//! Counts of a load.

use dray_datapath::Arrivals;
use serde::Serialize;

/// Counts of one direction's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived and were correct in every field.
    pub received: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Packets that arrived after a later one of the same session, or twice.
    pub reordered: u64,
    /// Packets with a wrong outer address, user address, or port.
    pub wrong_address: u64,
    /// Packets with a wrong TEID.
    pub wrong_teid: u64,
    /// Packets with a wrong QFI.
    pub wrong_qfi: u64,
    /// Packets with a wrong payload, length, time to live, or checksum.
    pub wrong_packet: u64,
    /// Frames that do not belong to this load.
    pub foreign: u64,
    /// Frames, of any kind, lost at the load's own port because they were not read in time.
    pub dropped: u64,
    /// Error indications from the user plane function: it has no tunnel with a packet's TEID.
    pub error_indications: u64,
    /// ICMP errors from the user plane function: it could not forward a packet.
    pub icmp_errors: u64,
    /// Rate of the sent packets.
    #[serde(skip)]
    pub sending: Arrivals,
    /// Rate of the received packets.
    #[serde(skip)]
    pub receiving: Arrivals,
}

impl Outcome {
    /// Returns the number of packets that arrived with a wrong field, or out of order.
    pub fn wrong(&self) -> u64 {
        self.wrong_address + self.wrong_teid + self.wrong_qfi + self.wrong_packet + self.reordered
    }
}

//! What a direction counts: packets, bytes, and why packets were dropped.
//!
//! A data thread adds to plain numbers ([`Counters`]) and copies them now and then to where others
//! read them (`Published`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::ser::{Serialize, SerializeMap, Serializer};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word for it in JSON and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

counters! {
    /// A frame for another Ethernet address.
    OtherHost = "other_host",
    /// Neither IP nor ARP, or cut short.
    NotIp = "not_ip",
    /// N3: the outer IP header is wrong.
    OuterIp = "outer_ip",
    /// N3: a fragment of an outer packet; these are not put together.
    OuterFragment = "outer_fragment",
    /// An IP packet for an address of our own, and not one that we answer.
    NotForUs = "not_for_us",
    /// N3: the UDP header is wrong, or the port is not GTP-U's.
    OuterUdp = "outer_udp",
    /// N3: the GTP-U header is wrong, or the message is of a type that is not known.
    Gtpu = "gtpu",
    /// N3: an extension header is wrong.
    GtpuExtension = "gtpu_extension",
    /// N3: an extension header that had to be understood was not.
    GtpuUnknownExtension = "gtpu_unknown_extension",
    /// N3: there is no tunnel of this TEID.
    UnknownTeid = "unknown_teid",
    /// The user's IP header is wrong.
    InnerIp = "inner_ip",
    /// N3: the user's packet does not come from one of the user's own addresses.
    Spoofed = "spoofed",
    /// N6: no session has this address.
    NoSession = "no_session",
    /// N6: to a group.
    Group = "group",
    /// No rule of the session is for this packet.
    NoRule = "no_rule",
    /// A forwarding action rule says so.
    Rule = "rule",
    /// A gate is closed.
    GateClosed = "gate_closed",
    /// More than the maximum bit rate.
    Policed = "policed",
    /// A quota is used up.
    Quota = "quota",
    /// There is no room to keep the packet.
    BufferFull = "buffer_full",
    /// The packet was kept and its session is gone.
    SessionGone = "session_gone",
    /// It has been through too many routers.
    TtlExpired = "ttl_expired",
    /// Longer than the next link takes.
    TooBig = "too_big",
    /// There is no route to its destination.
    NoRoute = "no_route",
    /// The next hop's Ethernet address is not known.
    NoNeighbour = "no_neighbour",
    /// The port out did not take it.
    PortFull = "port_full",
}

const REASONS: usize = DropReason::ALL.len();

/// Of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received, whatever became of them.
    pub rx_packets: u64,
    /// Their bytes, from destination MAC to end of payload.
    pub rx_bytes: u64,
    /// Users' packets forwarded.
    pub tx_packets: u64,
    /// Bytes of their frames.
    pub tx_bytes: u64,
    /// Messages received that are about the network itself, and were dealt with: ARP, neighbour
    /// discovery, echo requests, end markers, error indications.
    pub control: u64,
    /// Packets kept for later; each is counted again when it is forwarded or dropped.
    pub buffered: u64,
    /// End markers received.
    pub end_markers: u64,
    /// Error indications received.
    pub error_indications: u64,
    drops: [u64; REASONS],
}

const WORDS: usize = 8 + REASONS;

impl Counters {
    /// Counts a packet dropped for `reason`.
    #[inline(always)]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// How many were dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// How many were dropped in all.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// The reasons that packets were dropped for, with their numbers.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let all = DropReason::ALL.iter().copied().zip(self.drops);
        all.filter(|(_, packets)| *packets != 0)
    }

    fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("rx_packets", self.rx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_packets", self.tx_packets),
            ("tx_bytes", self.tx_bytes),
            ("control", self.control),
            ("buffered", self.buffered),
            ("end_markers", self.end_markers),
            ("error_indications", self.error_indications),
        ]
    }

    fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (first, drops) = words.split_at_mut(8);
        first.copy_from_slice(&self.named().map(|(_, number)| number));
        drops.copy_from_slice(&self.drops);
        words
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let [
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            control,
            buffered,
            end_markers,
            error_indications,
            drops @ ..,
        ] = words;
        Self {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            control,
            buffered,
            end_markers,
            error_indications,
            drops,
        }
    }
}

/// An object of numbers: the counters, and in it `drops`, with every reason.
impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Drops<'c>(&'c Counters);
        impl Serialize for Drops<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let all = DropReason::ALL.iter().map(|reason| reason.name());
                serializer.collect_map(all.zip(&self.0.drops))
            }
        }
        let mut map = serializer.serialize_map(Some(9))?;
        for (name, number) in self.named() {
            map.serialize_entry(name, &number)?;
        }
        map.serialize_entry("drops", &Drops(self))?;
        map.end()
    }
}

/// The counters of one direction, as last published. Only its thread writes them; each number is right
/// by itself, and they may be of slightly different moments.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Published([AtomicU64; WORDS]);

impl Default for Published {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }
}

impl Published {
    /// Makes `counters` seen.
    pub(crate) fn publish(&self, counters: &Counters) {
        for (to, from) in self.0.iter().zip(counters.words()) {
            to.store(from, Relaxed);
        }
    }

    /// What was published last.
    pub(crate) fn read(&self) -> Counters {
        Counters::from_words(self.0.each_ref().map(|word| word.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let counters = Counters::from_words(std::array::from_fn(|i| i as u64 + 1));
        let published = Published::default();
        published.publish(&counters);
        assert_eq!(published.read(), counters);
        assert_eq!(counters.dropped(DropReason::OtherHost), 9);
        assert_eq!(counters.drops().count(), REASONS);
    }
}

//! What is counted for each port: frames, bytes, and why frames were dropped.
//!
//! A worker adds to plain numbers ([`Counters`]) and copies them now and then to where control
//! threads read them ([`Published`]).

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a frame was dropped, and at which port it is counted: at the one it came from (rx) or
        /// at the one it was for (tx).
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

drop_reasons! {
    /// tx: the peer gave no buffer to put it in, or the queue was full.
    ReceiverFull = "receiver_full",
    /// tx: no peer is connected, or it has not made its rings ready.
    ReceiverNotReady = "receiver_not_ready",
    /// tx: longer than this port's peer takes.
    TooLong = "too_long",
    /// rx: shorter than an Ethernet header.
    TooShort = "too_short",
    /// rx: what the peer handed over is no frame, such as a virtio-net header that asks for what was
    /// not negotiated.
    Malformed = "malformed",
    /// rx: there is no other port that it could go to.
    NoReceiver = "no_receiver",
    /// rx: its destination is behind the port it came from.
    Hairpin = "hairpin",
    /// rx: the port is not a member of the frame's VLAN, or the destination's port is not.
    VlanNotAllowed = "vlan_not_allowed",
    /// rx: the destination's port is in the same isolation group.
    Isolated = "isolated",
}

const REASONS: usize = DropReason::ALL.len();

/// A port's counters, as the switch sees them: `rx` is what the port's peer sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames received, whatever became of them.
    pub rx_frames: u64,
    /// Their bytes, from destination MAC to end of payload.
    pub rx_bytes: u64,
    /// Frames transmitted.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Source addresses that were not learned, because the port has used up its share or the table
    /// is full. Their frames went on.
    pub addresses_refused: u64,
    /// Frames dropped, by reason.
    pub drops: Drops,
}

/// Frames dropped, by reason. In JSON an object with a number for every reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; REASONS]);

impl Drops {
    /// Counts `frames` dropped for `reason`.
    #[inline]
    pub fn add(&mut self, reason: DropReason, frames: u64) {
        self.0[reason as usize] += frames;
    }

    /// How many were dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// How many were dropped in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that frames were dropped for, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let all = DropReason::ALL.iter().zip(&self.0);
        all.filter(|(_, frames)| **frames != 0).map(|(reason, frames)| (*reason, *frames))
    }
}

impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        *self = Self::from_words(std::array::from_fn(|i| {
            self.words()[i].wrapping_add(other.words()[i])
        }));
    }
}

const WORDS: usize = 5 + REASONS;

impl Counters {
    fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (first, drops) = words.split_at_mut(5);
        first.copy_from_slice(&[
            self.rx_frames,
            self.rx_bytes,
            self.tx_frames,
            self.tx_bytes,
            self.addresses_refused,
        ]);
        drops.copy_from_slice(&self.drops.0);
        words
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let [rx_frames, rx_bytes, tx_frames, tx_bytes, addresses_refused, drops @ ..] = words;
        let drops = Drops(drops);
        Self { rx_frames, rx_bytes, tx_frames, tx_bytes, addresses_refused, drops }
    }
}

/// Counters of one port at one worker, as last published. Only that worker writes them; each number
/// is right by itself, and they may be of slightly different moments.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct Published([AtomicU64; WORDS]);

impl Published {
    /// Makes `counters` seen.
    pub fn publish(&self, counters: &Counters) {
        for (to, from) in self.0.iter().zip(counters.words()) {
            to.store(from, Relaxed);
        }
    }

    /// What was published last.
    pub fn read(&self) -> Counters {
        Counters::from_words(self.0.each_ref().map(|word| word.load(Relaxed)))
    }
}

impl Serialize for Drops {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(REASONS))?;
        for (reason, frames) in DropReason::ALL.iter().zip(&self.0) {
            map.serialize_entry(reason.name(), frames)?;
        }
        map.end()
    }
}

/// Reasons of another version are passed over.
impl<'de> Deserialize<'de> for Drops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reasons;
        impl<'de> Visitor<'de> for Reasons {
            type Value = Drops;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("numbers of frames by reason")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Drops, A::Error> {
                let mut drops = Drops::default();
                while let Some(name) = map.next_key::<String>()? {
                    match DropReason::ALL.iter().find(|reason| reason.name() == name) {
                        Some(reason) => drops.0[*reason as usize] = map.next_value()?,
                        None => _ = map.next_value::<IgnoredAny>()?,
                    }
                }
                Ok(drops)
            }
        }
        deserializer.deserialize_map(Reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Counters {
        let mut counters = Counters::from_words(std::array::from_fn(|i| i as u64 + 1));
        counters.drops.add(DropReason::Hairpin, 100);
        counters
    }

    #[test]
    fn what_is_published_is_read_and_adds_up() {
        let published = Published::default();
        published.publish(&some());
        let mut sum = published.read();
        assert_eq!(sum, some());
        sum += &some();
        assert_eq!(sum.rx_bytes, 4);
        assert_eq!(sum.drops.get(DropReason::Hairpin), 2 * some().drops.get(DropReason::Hairpin));
        assert_eq!(sum.drops.total(), 2 * some().drops.total());
    }

    #[test]
    fn json_names_every_reason() {
        let text = serde_json::to_string(&some()).unwrap();
        for reason in DropReason::ALL {
            assert!(text.contains(&format!("\"{}\":", reason.name())), "{text}");
        }
        assert_eq!(serde_json::from_str::<Counters>(&text).unwrap(), some());
    }
}

//! VLANs (IEEE 802.1Q), and a port's membership in them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// VLAN identifier, 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u16", try_from = "i64")]
pub struct VlanId(u16);

/// The text or number is not a VLAN identifier, or not a list of them.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum VlanError {
    /// One identifier.
    #[error("VLAN {0}: give 1 to 4094")]
    One(String),
    /// A list.
    #[error("VLANs {0:?}: give 1 to 4094, several as 10+20")]
    List(String),
}

impl From<VlanId> for u16 {
    fn from(vlan: VlanId) -> Self {
        vlan.0
    }
}

impl TryFrom<i64> for VlanId {
    type Error = VlanError;

    fn try_from(number: i64) -> Result<Self, VlanError> {
        match u16::try_from(number) {
            Ok(vlan @ 1..=4094) => Ok(Self(vlan)),
            _ => Err(VlanError::One(number.to_string())),
        }
    }
}

impl FromStr for VlanId {
    type Err = VlanError;

    fn from_str(text: &str) -> Result<Self, VlanError> {
        let number: i64 = text.parse().map_err(|_| VlanError::One(format!("{text:?}")))?;
        number.try_into()
    }
}

/// Parses a list of VLANs: `10+20`, or `10,20` where a comma has no other meaning.
pub(super) fn parse_trunk(text: &str) -> Result<Vec<VlanId>, VlanError> {
    let vlans: Result<_, VlanError> = text.split(['+', ',']).map(str::parse).collect();
    vlans.map_err(|_| VlanError::List(text.to_owned()))
}

/// Deserialises VLANs from a list of numbers, or from text as on the command line.
pub(super) fn trunk<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<VlanId>>, D::Error> {
    struct Trunk;

    impl<'de> Visitor<'de> for Trunk {
        type Value = Vec<VlanId>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("VLANs, as in [10, 20] or \"10+20\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            parse_trunk(text).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    from.deserialize_any(Trunk).map(Some)
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// VLAN membership of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vlan {
    /// No VLAN. Frames pass unchanged between such ports, tagged or not, and only between them;
    /// their stations are learned in VLAN 0. A peer cannot get into a VLAN by tagging its frames.
    #[default]
    Unaware,
    /// An access port: frames carry no tag on the port and belong to this VLAN. Tagged frames are
    /// dropped.
    Access(VlanId),
    /// A trunk port.
    Trunk {
        /// VLANs whose frames carry their tag on the port, without `native`.
        tagged: BTreeSet<VlanId>,
        /// VLAN whose frames carry no tag on the port. Without one, untagged frames are dropped.
        native: Option<VlanId>,
    },
}

impl Vlan {
    /// Returns the VLANs; 0 for ports without VLANs.
    pub fn ids(&self) -> impl Iterator<Item = u16> {
        let (one, tagged) = match self {
            Self::Unaware => (Some(0), None),
            Self::Access(vlan) => (Some(vlan.0), None),
            Self::Trunk { tagged, native } => (native.map(u16::from), Some(tagged)),
        };
        one.into_iter().chain(tagged.into_iter().flatten().map(|vlan| vlan.0))
    }

    /// Returns true if both have a VLAN in common, or neither has VLANs.
    pub fn meets(&self, other: &Self) -> bool {
        let own: BTreeSet<_> = self.ids().collect();
        other.ids().any(|vlan| own.contains(&vlan))
    }
}

impl fmt::Display for Vlan {
    /// Formats the membership as in a table: `-`, `10`, `10+20`, `10+20, native 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaware => f.write_str("-"),
            Self::Access(vlan) => vlan.fmt(f),
            Self::Trunk { tagged, native } => {
                for (i, vlan) in tagged.iter().enumerate() {
                    let plus = if i == 0 { "" } else { "+" };
                    write!(f, "{plus}{vlan}")?;
                }
                native.map_or(Ok(()), |native| write!(f, ", native {native}"))
            }
        }
    }
}

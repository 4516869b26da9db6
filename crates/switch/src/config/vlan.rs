//! VLANs (IEEE 802.1Q), and a port's membership in them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// VLAN identifier, 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u16", try_from = "i64")]
pub struct VlanId(u16);

/// The number is not a valid VLAN identifier.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("VLAN {0}: give 1 to 4094")]
pub struct VlanError(String);

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
            _ => Err(VlanError(number.to_string())),
        }
    }
}

impl FromStr for VlanId {
    type Err = VlanError;

    fn from_str(text: &str) -> Result<Self, VlanError> {
        let number: i64 = text.parse().map_err(|_| VlanError(format!("{text:?}")))?;
        number.try_into()
    }
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

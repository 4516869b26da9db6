//! How full a ring is.

use serde::{Deserialize, Serialize};

/// Fill of a ring at a moment. A peer that shares the ring may lie about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// Entries with frames that the receiving side has not taken.
    pub used: u32,
    /// Entries of the ring.
    pub size: u32,
}

impl Fill {
    pub(crate) fn new(used: u16, size: u16) -> Self {
        Self { used: used.into(), size: size.into() }
    }

    /// Returns the fill of several rings together; `None` if none of them is known.
    pub fn sum(fills: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        fills
            .into_iter()
            .flatten()
            .reduce(|a, b| Self { used: a.used + b.used, size: a.size + b.size })
    }
}

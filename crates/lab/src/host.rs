//! Facts.
use serde::{Deserialize, Serialize};
/// Facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {}
impl HostFacts {
    /// Gathers.
    pub fn gather() -> Self { Self {} }
}

//! Cases: what becomes a row of results.

use crate::{Shape, Technique};

/// One row to be: a technique in a topology at a frame size.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Link and endpoint.
    pub technique: Technique,
    /// Arrangement of the roles.
    pub shape: Shape,
    /// Frame size in bytes.
    pub size: usize,
    /// Frames per second; `None` for as many as possible.
    pub rate: Option<f64>,
    /// What the paper found, in frames per second.
    pub paper_pps: Option<f64>,
}

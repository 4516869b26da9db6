//! Cases: what becomes a row of results.

use std::fmt;

use dray_lab::Runtime;
use dray_traffic::Check;

use crate::{Neighbour, Shape, Technique};

/// One row to be: a technique in a topology at a frame size, or of byte streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Link and endpoint.
    pub technique: Technique,
    /// What a neighbour does, where there is to be one.
    pub neighbour: Option<Neighbour>,
    /// Who makes the containers.
    pub runtime: Runtime,
    /// Arrangement of the roles.
    pub shape: Shape,
    /// MTU of the links, in bytes.
    pub mtu: u32,
    /// Frame size in bytes. Streams make their own of it.
    pub size: usize,
    /// Frames per second; `None` for as many as possible.
    pub rate: Option<f64>,
    /// The share of the loss-free rate to offer, where that is to be found first.
    pub share: Option<f64>,
    /// How closely receivers look at frames; `None` leaves it to the technique.
    pub check: Option<Check>,
    /// What the paper found, in frames per second.
    pub paper_pps: Option<f64>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.technique)?;
        match self.shape {
            Shape::Pairs(pairs) => write!(f, " x {pairs}")?,
            Shape::Upf(load) => write!(f, " {load}")?,
            Shape::Chain(_) | Shape::Fan(_) | Shape::Echo => {}
        }
        match self.technique.endpoint.is_stream() {
            true => write!(f, " MTU {}", self.mtu),
            false => write!(f, " {} B", self.size),
        }?;
        if let Some(rate) = self.rate {
            write!(f, " at {:.0} kpps", rate / 1e3)?;
        }
        match self.shape {
            Shape::Chain(count @ 1..) => write!(f, ", {count} forwarders in a chain")?,
            Shape::Fan(count) => write!(f, ", {count} forwarders side by side")?,
            Shape::Echo => write!(f, ", there and back")?,
            Shape::Chain(0) | Shape::Pairs(_) | Shape::Upf(_) => {}
        }
        if let Some(neighbour) = self.neighbour {
            write!(f, ", {} neighbour", neighbour.name())?;
        }
        match self.runtime {
            Runtime::Embedded => Ok(()),
            runtime => write!(f, " in {runtime}"),
        }
    }
}

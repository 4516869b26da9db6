//! Cases: each one becomes a row of results.

use std::fmt;

use dray_lab::Runtime;
use dray_results::{Check, Neighbour};

use crate::shape::Shape;
use crate::technique::Technique;

/// A future row of results: a technique in a topology at a frame size, or with byte streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Link and endpoint.
    pub technique: Technique,
    /// Load of the neighbour; `None` without one.
    pub neighbour: Option<Neighbour>,
    /// Runtime that creates the containers.
    pub runtime: Runtime,
    /// Arrangement of the roles.
    pub shape: Shape,
    /// MTU of the links, in bytes.
    pub mtu: u32,
    /// Frame size in bytes. Streams segment their data themselves.
    pub size: usize,
    /// MAC address pairs to rotate through.
    pub stations: u16,
    /// Frames per second; `None` sends as fast as possible.
    pub rate: Option<f64>,
    /// Share of the loss-free rate to offer, where that rate is searched for first.
    pub share: Option<f64>,
    /// How thoroughly receivers check frames; `None` leaves it to the technique.
    pub check: Option<Check>,
    /// Rate stated by the paper, in frames per second.
    pub paper_pps: Option<f64>,
}

impl Case {
    /// Returns true if both cases can be measured on one testbed. A switch has learned the
    /// addresses of one, so others get a new one.
    pub(crate) fn shares_testbed(&self, other: &Self) -> bool {
        let testbed = |case: &Self| {
            let Self { technique, runtime, shape, mtu, stations, neighbour, .. } = *case;
            (technique, runtime, shape, mtu, stations, neighbour.is_some())
        };
        testbed(self) == testbed(other)
    }

    /// Creates the plainest case of a technique.
    pub(super) fn of(technique: Technique) -> Self {
        Self {
            technique,
            neighbour: None,
            runtime: Runtime::Embedded,
            shape: Shape::Chain(0),
            mtu: 1500,
            size: 0,
            stations: 1,
            rate: None,
            share: None,
            check: None,
            paper_pps: None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.technique)?;
        match self.shape {
            Shape::Pairs(pairs) => write!(f, " x {pairs}")?,
            Shape::Upf(load) => write!(f, " {load}")?,
            Shape::Ports(load) => write!(f, " {load},")?,
            Shape::Chain(_) | Shape::Fan(_) | Shape::Echo => {}
        }
        match self.technique.endpoint.is_stream() {
            true => write!(f, " MTU {}", self.mtu),
            false => write!(f, " {} B", self.size),
        }?;
        if self.stations > 1 {
            write!(f, ", {} stations", self.stations)?;
        }
        if let Some(rate) = self.rate {
            write!(f, " at {:.0} kpps", rate / 1e3)?;
        }
        match self.shape {
            Shape::Chain(count @ 1..) => write!(f, ", {count} forwarders in a chain")?,
            Shape::Fan(count) => write!(f, ", {count} forwarders side by side")?,
            Shape::Echo => write!(f, ", there and back")?,
            Shape::Chain(0) | Shape::Pairs(_) | Shape::Upf(_) | Shape::Ports(_) => {}
        }
        if let Some(neighbour) = self.neighbour {
            write!(f, ", {neighbour} neighbour")?;
        }
        match self.runtime {
            Runtime::Embedded => Ok(()),
            runtime => write!(f, " in {runtime}"),
        }
    }
}

//! What the user chooses.

use std::time::Duration;

use dray_lab::Runtime;
use dray_traffic::Check;

/// What the command line asks for; `None` leaves it to the experiment.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Frame sizes in bytes.
    pub sizes: Option<Vec<usize>>,
    /// Frames per burst.
    pub burst: Option<usize>,
    /// Pairs of sender and receiver, at the same time.
    pub pairs: Option<Vec<usize>>,
    /// Flows per link of the sender, or byte streams of each.
    pub flows: Option<u16>,
    /// Pairs of machines, by their MAC addresses, that frames are between.
    pub stations: Option<u16>,
    /// Frames per second.
    pub rate: Option<f64>,
    /// Search for the highest rates at which these shares of frames are lost.
    pub losses: Option<Vec<f64>>,
    /// Techniques, as `--technique` reads them.
    pub techniques: Option<Vec<String>>,
    /// Length of a measurement.
    pub duration: Option<Duration>,
    /// Trials per case.
    pub trials: Option<usize>,
    /// MTU of the links in bytes.
    pub mtu: Option<u32>,
    /// A network card of the machine's that containers may get virtual functions of.
    pub parent: Option<String>,
    /// CPUs for the roles, in this order.
    pub cpus: Option<Vec<usize>>,
    /// How closely receivers look at frames.
    pub check: Option<Check>,
    /// Shorten everything.
    pub quick: bool,
    /// Who makes the containers.
    pub runtime: Runtime,
}

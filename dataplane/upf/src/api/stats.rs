//! Counters of a user plane function, for the control socket.

use dray_wire::gtpu::Direction;
use serde::{Deserialize, Serialize, Serializer};

use crate::{Counters, EventsLost, Upf};

/// Counters of a user plane function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Counters from access to core.
    #[serde(serialize_with = "with_former_name")]
    pub uplink: Counters,
    /// Counters from core to access.
    #[serde(serialize_with = "with_former_name")]
    pub downlink: Counters,
    /// Frames received by each uplink worker.
    pub uplink_workers: Vec<u64>,
    /// Frames received by each downlink worker.
    pub downlink_workers: Vec<u64>,
    /// Events lost because the control plane did not read them in time.
    pub events_lost: EventsLost,
}

impl From<&Upf> for Stats {
    fn from(upf: &Upf) -> Self {
        let received = |direction| upf.workers(direction).map(|worker| worker.rx_packets).collect();
        Self {
            uplink: upf.uplink(),
            downlink: upf.downlink(),
            uplink_workers: received(Direction::Uplink),
            downlink_workers: received(Direction::Downlink),
            events_lost: upf.events_lost(),
        }
    }
}

/// Serializes counters also with the name that `errors_sent` had before.
fn with_former_name<S: Serializer>(counters: &Counters, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct WithFormerName<'c> {
        #[serde(flatten)]
        counters: &'c Counters,
        complaints: u64,
    }
    WithFormerName { counters, complaints: counters.errors_sent }.serialize(serializer)
}

//! What the user chooses.

use std::time::Duration;

use dray_lab::Runtime;
use dray_traffic::Check;
use serde::{Deserialize, Serialize};

/// What the command line asks for; `None` leaves it to the experiment. Results that are incomplete have
/// it under the options' own names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Choices {
    /// Frame sizes in bytes.
    #[serde(skip_serializing_if = "Option::is_none", rename = "size")]
    pub sizes: Option<Vec<usize>>,
    /// Frames per burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<usize>,
    /// Pairs of sender and receiver, at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Vec<usize>>,
    /// Flows per link of the sender, or byte streams of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u16>,
    /// Pairs of machines, by their MAC addresses, that frames are between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stations: Option<u16>,
    /// Frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Search for the highest rates at which these shares of frames are lost.
    #[serde(skip_serializing_if = "Option::is_none", rename = "loss")]
    pub losses: Option<Vec<f64>>,
    /// Techniques, as `--technique` reads them.
    #[serde(skip_serializing_if = "Option::is_none", rename = "technique")]
    pub techniques: Option<Vec<String>>,
    /// Length of a measurement.
    #[serde(skip_serializing_if = "Option::is_none", with = "seconds")]
    pub duration: Option<Duration>,
    /// Trials per case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<usize>,
    /// MTU of the links in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// A network card of the machine's that containers may get virtual functions of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// CPUs for the roles, in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<usize>>,
    /// How closely receivers look at frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// What the random order follows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// Shorten everything.
    #[serde(skip_serializing_if = "is_default")]
    pub quick: bool,
    /// Who makes the containers.
    #[serde(skip_serializing_if = "Option::is_none", rename = "runtime")]
    pub runtimes: Option<Vec<Runtime>>,
}

/// A duration as a number of seconds.
mod seconds {
    use super::{Deserialize, Duration, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
    }

    pub(super) fn deserialize<'d, D: serde::Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        let duration =
            |seconds| Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom);
        seconds.map(duration).transpose()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

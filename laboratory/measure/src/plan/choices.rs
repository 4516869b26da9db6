//! The user's choices.

use std::time::Duration;

use dray_lab::Runtime;
use dray_results::Check;
use serde::{Deserialize, Serialize};

/// Choices from the command line; `None` leaves the choice to the experiment. Incomplete results
/// store them under the names of the options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Choices {
    /// Frame sizes in bytes.
    #[serde(skip_serializing_if = "Option::is_none", rename = "size")]
    pub sizes: Option<Vec<usize>>,
    /// Frames per burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<usize>,
    /// Numbers of concurrent sender/receiver pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Vec<usize>>,
    /// Flows per link of the sender, or byte streams per sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u16>,
    /// MAC address pairs to rotate through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stations: Option<u16>,
    /// Frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Search for the highest rates at which these shares of frames are lost.
    #[serde(skip_serializing_if = "Option::is_none", rename = "loss")]
    pub losses: Option<Vec<f64>>,
    /// Techniques, in the syntax of `--technique`.
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
    /// Host network card whose virtual functions containers may get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// CPUs for the roles, in the order of assignment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<usize>>,
    /// How thoroughly receivers check frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Seed for the order of trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// True to shorten everything.
    #[serde(skip_serializing_if = "is_default")]
    pub quick: bool,
    /// Runtimes that create the containers.
    #[serde(skip_serializing_if = "Option::is_none", rename = "runtime")]
    pub runtimes: Option<Vec<Runtime>>,
}

/// Serialization of a duration as a number of seconds.
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

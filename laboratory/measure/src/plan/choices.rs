//! The user's choices.

use std::time::Duration;

use dray_lab::Runtime;
use dray_results::Check;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Choices from the command line; `None` leaves the choice to the experiment. Incomplete results
/// store them under the names of the options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Choices {
    /// Frame sizes in bytes.
    #[serde(rename = "size")]
    pub sizes: Option<Vec<usize>>,
    /// Frames per burst.
    pub burst: Option<usize>,
    /// Numbers of concurrent sender/receiver pairs.
    pub pairs: Option<Vec<usize>>,
    /// Flows per link of the sender, or byte streams per sender.
    pub flows: Option<u16>,
    /// MAC address pairs to rotate through.
    pub stations: Option<u16>,
    /// Frames per second.
    pub rate: Option<f64>,
    /// Search for the highest rates at which these shares of frames are lost.
    #[serde(rename = "loss")]
    pub losses: Option<Vec<f64>>,
    /// Techniques, in the syntax of `--technique`.
    #[serde(rename = "technique")]
    pub techniques: Option<Vec<String>>,
    /// Length of a measurement.
    #[serde(with = "seconds")]
    pub duration: Option<Duration>,
    /// Trials per case.
    pub trials: Option<usize>,
    /// MTU of the links in bytes.
    pub mtu: Option<u32>,
    /// Host network card whose virtual functions containers may get.
    pub parent: Option<String>,
    /// Bits per second of the cable between two hosts.
    pub cable: Option<u64>,
    /// CPUs for the roles, in the order of assignment.
    pub cpus: Option<Vec<usize>>,
    /// How thoroughly receivers check frames.
    pub check: Option<Check>,
    /// Seed for the order of trials.
    pub seed: Option<u32>,
    /// True to shorten everything.
    pub quick: bool,
    /// Runtimes that create the containers.
    #[serde(rename = "runtime")]
    pub runtimes: Option<Vec<Runtime>>,
}

impl Choices {
    /// Returns what was chosen, by the names of the options.
    pub(crate) fn given(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut options)) = serde_json::to_value(self) else {
            unreachable!("choices are a JSON object: {self:?}")
        };
        options.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)));
        options
    }
}

/// Serialization of a duration as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_options_are_stored() {
        assert!(Choices::default().given().is_empty());
        let choices = Choices {
            sizes: Some(vec![64]),
            duration: Some(Duration::from_millis(500)),
            quick: true,
            ..Choices::default()
        };
        let stored = Value::Object(choices.given());
        assert_eq!(stored, serde_json::json!({"size": [64], "duration": 0.5, "quick": true}));
        assert_eq!(serde_json::from_value::<Choices>(stored).unwrap(), choices);
    }
}

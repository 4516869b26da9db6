//! What the user plane function is told, in a TOML file.

mod application;
mod error;
mod filter;
mod generator;
mod interface;
mod session;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use application::Application;
pub use error::ConfigError;
pub use filter::{End, Filter, FilterError, Prefix, PrefixError};
pub use generator::Generator;
pub use interface::{InterfaceConfig, Neighbour, Route};
pub use session::{Action, Far, Gate, Pdr, Qer, SessionConfig, Side, Tunnel, Urr, Volume};

pub(crate) use application::Detector;
pub(crate) use filter::Ends;

/// All that a user plane function is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpfConfig {
    /// The side of the gNBs.
    pub n3: InterfaceConfig,
    /// The side of the data network.
    pub n6: InterfaceConfig,
    /// Room for so many sessions.
    #[serde(default = "UpfConfig::default_sessions_max")]
    pub sessions_max: usize,
    /// Room for so many packets that wait until their session forwards them.
    #[serde(default = "UpfConfig::default_buffer_packets")]
    pub buffer_packets: usize,
    /// Of which one session may have so many.
    #[serde(default = "UpfConfig::default_buffer_per_session")]
    pub buffer_per_session: u16,
    /// Applications that rules may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<Application>,
    /// Sessions, all alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generator>,
    /// Sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionConfig>,
}

impl UpfConfig {
    fn default_sessions_max() -> usize {
        65_536
    }

    fn default_buffer_packets() -> usize {
        4096
    }

    fn default_buffer_per_session() -> u16 {
        64
    }

    /// Reads a configuration file. What its values mean together is checked where they are used:
    /// [`Upf::new`](crate::Upf::new).
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let named = |what: String| ConfigError::new(what).in_file(path);
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        Self::from_toml(&text).map_err(|error| error.in_file(path))
    }

    /// Reads a configuration.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let wrong = |error: &toml::de::Error, field: &str| {
            let line = error.span().map(|span| {
                let newlines = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
                (newlines + 1).min(text.lines().count().max(1))
            });
            let message: Vec<_> = error.message().lines().map(str::trim).collect();
            ConfigError::new(message.join(", ")).in_field(field).in_line(line)
        };
        let deserializer = toml::de::Deserializer::parse(text).map_err(|e| wrong(&e, ""))?;
        serde_path_to_error::deserialize(deserializer)
            .map_err(|error| wrong(error.inner(), &error.path().to_string()))
    }

    /// All sessions: those that are generated, and those that are given one by one.
    pub fn all_sessions(&self) -> impl Iterator<Item = SessionConfig> + '_ {
        let generated = self.generate.iter().flat_map(Generator::sessions);
        generated.chain(self.sessions.iter().cloned())
    }

    /// How many sessions that are.
    pub fn session_count(&self) -> usize {
        self.sessions.len() + self.generate.as_ref().map_or(0, |generator| generator.count as usize)
    }
}

#[cfg(test)]
mod tests;

//! What the user plane function is told, in a TOML file.

mod application;
mod error;
mod filter;
mod generator;
mod interface;
mod session;
mod text;

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
pub(crate) use text::from_json;

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
    /// They wait for so many milliseconds at most.
    #[serde(default = "UpfConfig::default_buffer_ms")]
    pub buffer_ms: u32,
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

    fn default_buffer_ms() -> u32 {
        10_000
    }

    /// Reads a configuration file. What its values mean together is checked where they are used:
    /// [`Upf::new`](crate::Upf::new).
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        text::load(path)
    }

    /// Reads a configuration.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        text::from_toml(text)
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

/// Sessions alone, in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionsFile {
    /// Sessions, all alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generator>,
    /// Sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionConfig>,
}

impl SessionsFile {
    /// Reads a file: JSON, where its name ends so, else TOML.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        text::load(path)
    }

    /// All sessions: those that are generated, and those that are given one by one.
    pub fn into_sessions(self) -> Result<Vec<SessionConfig>, ConfigError> {
        self.generate.as_ref().map_or(Ok(()), Generator::check)?;
        let generated = self.generate.iter().flat_map(Generator::sessions);
        Ok(generated.chain(self.sessions.iter().cloned()).collect())
    }
}

#[cfg(test)]
mod tests;

//! Configuration of the user plane function, in a TOML file.

mod application;
mod error;
mod filter;
mod generator;
mod interface;
mod session;
pub(crate) mod teid;
mod text;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use application::Application;
pub use error::ConfigError;
pub use filter::{End, Filter, FilterError, Prefix, PrefixError};
pub use generator::Generator;
pub use interface::{InterfaceConfig, Neighbour, Route};
pub use session::{Action, Far, Gate, Pdr, Qer, SessionConfig, Tunnel, Urr, Volume};

pub(crate) use application::Detector;
pub(crate) use filter::Ends;
pub(crate) use text::from_json;

/// Configuration of a user plane function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpfConfig {
    /// N3: the interface to the gNBs.
    pub n3: InterfaceConfig,
    /// N6: the interface to the data network.
    pub n6: InterfaceConfig,
    /// Maximum number of sessions.
    #[serde(default = "UpfConfig::default_sessions_max")]
    pub sessions_max: usize,
    /// Maximum number of packets buffered until their session forwards them.
    #[serde(default = "UpfConfig::default_buffer_packets")]
    pub buffer_packets: usize,
    /// Maximum number of buffered packets per session.
    #[serde(default = "UpfConfig::default_buffer_per_session")]
    pub buffer_per_session: u16,
    /// Maximum time that a packet is buffered, in milliseconds.
    #[serde(default = "UpfConfig::default_buffer_ms")]
    pub buffer_ms: u32,
    /// Applications that rules may refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<Application>,
    /// Generator of identical sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generator>,
    /// Sessions listed one by one.
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

    /// Reads a configuration file. Values are checked against each other in
    /// [`Upf::new`](crate::Upf::new).
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        text::load(path)
    }

    /// Parses a configuration.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        text::from_toml(text)
    }

    /// Returns all sessions: generated and listed ones.
    pub fn all_sessions(&self) -> impl Iterator<Item = SessionConfig> + '_ {
        let generated = self.generate.iter().flat_map(Generator::sessions);
        generated.chain(self.sessions.iter().cloned())
    }

    /// Returns the number of all sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len() + self.generate.as_ref().map_or(0, |generator| generator.count as usize)
    }
}

/// A file that contains only sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionsFile {
    /// Generator of identical sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generator>,
    /// Sessions listed one by one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionConfig>,
}

impl SessionsFile {
    /// Reads a file: JSON if its name ends in `.json`, otherwise TOML.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        text::load(path)
    }

    /// Returns all sessions: generated and listed ones.
    pub fn into_sessions(self) -> Result<Vec<SessionConfig>, ConfigError> {
        self.generate.as_ref().map_or(Ok(()), Generator::check)?;
        let generated = self.generate.iter().flat_map(Generator::sessions);
        Ok(generated.chain(self.sessions.iter().cloned()).collect())
    }
}

#[cfg(test)]
mod tests;

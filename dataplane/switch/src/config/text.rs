//! Configuration as text: TOML with line numbers in errors, and JSON.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use dray_text::line_at;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::error::Subject;
use super::{ConfigError, SwitchConfig};

/// Maximum length of a configuration file, in bytes.
pub const FILE_MAX: usize = 1 << 20;

/// Reads a configuration file.
pub fn read_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_MAX {
        return Err(io::Error::other(format!("longer than {} KiB, the maximum", FILE_MAX >> 10)));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8 text"))
}

impl SwitchConfig {
    /// Reads a configuration file, applies `change` to it, and checks the result.
    pub fn load(
        path: &Path,
        change: impl FnOnce(&mut Self),
        cpus: &[u32],
    ) -> Result<Self, ConfigError> {
        let name = path.display();
        let named = |e: &dyn Display| ConfigError {
            line: None,
            subject: Subject::Text,
            what: format!("{name}: {e}"),
        };
        let text = read_file(path).map_err(|e| named(&e))?;
        let file = Self::from_toml(&text).map_err(|e| named(&e))?;
        let mut config = file.clone();
        change(&mut config);
        match (config.check(cpus), file.check(cpus)) {
            (Ok(()), _) => Ok(config),
            (Err(error), Err(same)) if error == same => Err(named(&error.find_line(&text))),
            // The file is valid; the change is not.
            (Err(error), _) => Err(error),
        }
    }

    /// Parses a configuration, without the checks of [`check`](Self::check).
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let wrong = |error: &toml::de::Error, key: &str| ConfigError {
            line: error.span().map(|span| line_at(text, span.start)),
            subject: Subject::Text,
            what: dray_text::parse_error(key, error.message()),
        };
        let deserializer = toml::de::Deserializer::parse(text).map_err(|error| {
            // No key is known here, so the error quotes the line.
            let line =
                error.span().and_then(|span| text.lines().nth(line_at(text, span.start) - 1));
            wrong(&error, &line.map(|line| format!("{:?}", line.trim())).unwrap_or_default())
        })?;
        serde_path_to_error::deserialize(deserializer)
            .map_err(|error| wrong(error.inner(), &error.path().to_string()))
    }

    /// Returns the configuration as an equivalent TOML file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a configuration serialises to TOML")
    }
}

impl ConfigError {
    /// Adds the line in `text` that the error is about: that of the key, or of the port if the key
    /// is missing.
    pub fn find_line(mut self, text: &str) -> Self {
        if let Ok(table) = DeTable::parse(text) {
            let span = match self.subject {
                Subject::Text => None,
                Subject::Key(key) => key_span(table.get_ref(), key),
                Subject::Port(number, key) => {
                    match table.get_ref().get("ports").map(toml::Spanned::get_ref) {
                        Some(DeValue::Array(ports)) => ports.get(number).and_then(|port| {
                            let keys = port.get_ref().as_table();
                            keys.and_then(|keys| key_span(keys, key)).or(Some(port.span().start))
                        }),
                        _ => None,
                    }
                }
            };
            self.line = self.line.or(span.map(|at| line_at(text, at)));
        }
        self
    }
}

fn key_span(table: &DeTable<'_>, key: &str) -> Option<usize> {
    table.get_key_value(key).map(|(key, _)| key.span().start)
}

/// Parses JSON from an untrusted client; the error is one line that names the key.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConfigError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let wrong = |key: &str, what: &serde_json::Error| ConfigError {
        line: None,
        subject: Subject::Text,
        what: dray_text::parse_error(key, &what.to_string()),
    };
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| wrong(&error.path().to_string(), error.inner()))?;
    deserializer.end().map_err(|error| wrong("", &error))?;
    Ok(value)
}

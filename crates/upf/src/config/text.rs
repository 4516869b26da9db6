//! From text to what it says.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::ConfigError;

/// Reads a file: JSON, where its name ends so, else TOML.
pub(super) fn load<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let named = |what: String| ConfigError::new(what).in_file(path);
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let read = if is_json { from_json(text.as_bytes()) } else { from_toml(&text) };
    read.map_err(|error| error.in_file(path))
}

pub(super) fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
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

pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConfigError> {
    let wrong = |error: &serde_json::Error, field: &str| {
        let message: Vec<_> =
            error.to_string().lines().map(|line| line.trim().to_owned()).collect();
        ConfigError::new(message.join(", ")).in_field(field)
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| wrong(error.inner(), &error.path().to_string()))?;
    deserializer.end().map_err(|error| wrong(&error, ""))?;
    Ok(value)
}

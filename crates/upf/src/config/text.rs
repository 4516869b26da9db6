//! Parsing of TOML and JSON, with errors that name the location.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path as Field, Segment};

use super::ConfigError;

/// Reads a file: JSON if its name ends in `.json`, otherwise TOML.
pub(super) fn load<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let named = |what: String| ConfigError::new(what).in_file(path);
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let read = if is_json { from_json(text.as_bytes()) } else { from_toml(&text) };
    read.map_err(|error| error.in_file(path))
}

pub(super) fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    let wrong = |error: &toml::de::Error| {
        let line = error.span().map(|span| {
            let newlines = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
            (newlines + 1).min(text.lines().count().max(1))
        });
        let message: Vec<_> = error.message().lines().map(str::trim).collect();
        ConfigError::new(message.join(", ")).in_line(line)
    };
    let deserializer = toml::de::Deserializer::parse(text).map_err(|error| wrong(&error))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let whole = || toml::from_str(text).ok();
        in_session(wrong(error.inner()), error.path(), whole)
    })
}

pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConfigError> {
    let wrong = |error: &serde_json::Error| {
        let message: Vec<_> =
            error.to_string().lines().map(|line| line.trim().to_owned()).collect();
        ConfigError::new(message.join(", "))
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let whole = || serde_json::from_slice(bytes).ok();
        in_session(wrong(error.inner()), error.path(), whole)
    })?;
    deserializer.end().map_err(|error| wrong(&error))?;
    Ok(value)
}

/// Adds the name of the invalid field to an error. A field of a session is named by the session's
/// SEID instead of its place in the list; `whole` parses the text again, as an untyped value.
fn in_session(
    error: ConfigError,
    field: &Field,
    whole: impl FnOnce() -> Option<Value>,
) -> ConfigError {
    let named = || {
        let mut list = field.iter();
        let (Some(Segment::Map { key }), Some(Segment::Seq { index })) = (list.next(), list.next())
        else {
            return None;
        };
        let seid = whole()?.get(key)?.get(index)?.get("seid")?.as_u64()?;
        let place = format!("{key}[{index}]");
        Some((seid, field.to_string().strip_prefix(&place)?.trim_start_matches('.').to_owned()))
    };
    match named() {
        Some((seid, field)) => error.in_session(seid).in_field(field),
        None => error.in_field(field.to_string()),
    }
}

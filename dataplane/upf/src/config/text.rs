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
    let wrong = |field: &str, error: &toml::de::Error| {
        let line = error.span().map(|span| dray_text::line_at(text, span.start));
        ConfigError::new(dray_text::parse_error(field, error.message())).in_line(line)
    };
    let deserializer = toml::de::Deserializer::parse(text).map_err(|error| wrong("", &error))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let (seid, field) = place(error.path(), || toml::from_str(text).ok());
        seid.into_iter().fold(wrong(&field, error.inner()), ConfigError::in_session)
    })
}

pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConfigError> {
    let wrong = |field: &str, error: &serde_json::Error| {
        ConfigError::new(dray_text::parse_error(field, &error.to_string()))
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let (seid, field) = place(error.path(), || serde_json::from_slice(bytes).ok());
        seid.into_iter().fold(wrong(&field, error.inner()), ConfigError::in_session)
    })?;
    deserializer.end().map_err(|error| wrong("", &error))?;
    Ok(value)
}

/// Returns the SEID of the session that an invalid field is in, if any, and the field's path. A
/// session is named by its SEID instead of its place in the list; `whole` parses the text again, as
/// an untyped value.
fn place(field: &Field, whole: impl FnOnce() -> Option<Value>) -> (Option<u64>, String) {
    let named = || {
        let mut list = field.iter();
        let (Some(Segment::Map { key }), Some(Segment::Seq { index })) = (list.next(), list.next())
        else {
            return None;
        };
        let seid = whole()?.get(key)?.get(index)?.get("seid")?.as_u64()?;
        let place = format!("{key}[{index}]");
        Some((Some(seid), field.to_string().strip_prefix(&place)?.to_owned()))
    };
    named().unwrap_or_else(|| (None, field.to_string()))
}

//! The `key=value` pairs of a port URI, with one style of error for all of them.

use std::fmt;

/// Error: a port URI is invalid. The message names the URI, what is wrong in it and what is
/// allowed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("port {uri:?}: {what}")]
pub struct UriError {
    uri: String,
    what: String,
}

/// The `key=value` pairs of a URI. Each transport takes the keys it knows; any key left is an
/// error.
pub struct Query<'a> {
    uri: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
    known: Vec<&'static str>,
}

impl<'a> Query<'a> {
    /// Parses `text`, the part of `uri` after the `?`.
    pub fn parse(uri: &'a str, text: &'a str) -> Result<Self, UriError> {
        let mut query = Self { uri, pairs: Vec::new(), known: Vec::new() };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(query.error(format!("{pair:?} is not of the form key=value")));
            };
            if query.pairs.iter().any(|(known, _)| *known == key) {
                return Err(query.error(format!("key {key:?} is given twice")));
            }
            query.pairs.push((key, value));
        }
        Ok(query)
    }

    /// Takes the key `key`, if present. `read` returns `None` for a value outside `allowed`.
    pub fn take<T>(
        &mut self,
        key: &'static str,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, UriError> {
        self.known.push(key);
        let Some(index) = self.pairs.iter().position(|(given, _)| *given == key) else {
            return Ok(None);
        };
        let (_, value) = self.pairs.swap_remove(index);
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.error(format!("{key}={value}: allowed is {allowed}"))),
        }
    }

    /// Takes the key `key`, whose value is 0 or 1; `usual` is the default.
    pub fn flag(&mut self, key: &'static str, usual: bool) -> Result<bool, UriError> {
        let read = |text: &str| matches!(text, "0" | "1").then_some(text == "1");
        Ok(self.take(key, "0 or 1", read)?.unwrap_or(usual))
    }

    /// Takes the key `queues`, the number of queues of a port: 1 to 16, by default 1.
    pub(crate) fn queues(&mut self) -> Result<u16, UriError> {
        let read = |text: &str| text.parse().ok().filter(|n| (1..=16).contains(n));
        Ok(self.take("queues", "1 to 16", read)?.unwrap_or(1))
    }

    /// Fails if a key is left that the transport does not know.
    pub fn finish(self, scheme: &str) -> Result<(), UriError> {
        let Some((key, _)) = self.pairs.first() else { return Ok(()) };
        let allowed = match self.known.as_slice() {
            [] => "takes no keys".to_owned(),
            known => format!("takes {}", known.join(", ")),
        };
        let hint = dray_text::hint(key, self.known.iter().copied());
        Err(self.error(format!("unknown key {key:?}{hint} {scheme}: {allowed}")))
    }

    /// Creates an error about this URI.
    pub fn error(&self, what: String) -> UriError {
        UriError { uri: self.uri.to_owned(), what }
    }
}

/// Writes `?key=value&...` for the pairs that differ from their defaults.
pub fn write_query(
    f: &mut fmt::Formatter<'_>,
    pairs: impl IntoIterator<Item = (&'static str, String)>,
) -> fmt::Result {
    let mut separator = '?';
    for (key, value) in pairs {
        write!(f, "{separator}{key}={value}")?;
        separator = '&';
    }
    Ok(())
}

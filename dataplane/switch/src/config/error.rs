//! Errors of a configuration.

use dray_daemon::Refusal;

/// Invalid configuration; one line that names the key, the value and what is allowed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}{what}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// Line of the error in the source text, counted from 1.
    pub line: Option<usize>,
    pub(super) subject: Subject,
    pub(super) what: String,
}

/// Part of the configuration that the error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Key(&'static str),
    /// Index of the port and its key.
    Port(usize, &'static str),
    /// The line is already known, or the error has no line.
    Text,
}

impl Subject {
    pub(super) fn in_port(self, number: usize) -> Self {
        match self {
            Self::Key(key) => Self::Port(number, key),
            other => other,
        }
    }
}

impl ConfigError {
    /// Creates an error about a key, with the value that was given.
    pub(crate) fn of_key(name: &'static str, given: &str, what: &str) -> Self {
        let what = format!("{name} = {given}: {what}");
        Self { line: None, subject: Subject::Key(name), what }
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::new(400, error.to_string())
    }
}

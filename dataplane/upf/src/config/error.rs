//! Errors in a configuration, with their location.

use std::fmt;
use std::path::{Path, PathBuf};

/// An invalid configuration. The message is one line: file, session and field as far as they are
/// known, the given value and what is allowed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    line: Option<usize>,
    session: Option<u64>,
    field: String,
    what: String,
}

impl ConfigError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { file: None, line: None, session: None, field: String::new(), what: what.into() }
    }

    pub(crate) fn in_field(self, field: impl Into<String>) -> Self {
        // For a document that is not valid at all, the path is a dot.
        let field = field.into();
        Self { field: if field == "." { String::new() } else { field }, ..self }
    }

    pub(crate) fn in_line(self, line: Option<usize>) -> Self {
        Self { line, ..self }
    }

    pub(crate) fn in_session(self, seid: u64) -> Self {
        Self { session: Some(seid), ..self }
    }

    /// Adds the name of the configuration file.
    pub fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(seid) = self.session {
            write!(f, "session {seid}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.what)
    }
}

//! Text of an event: its message and its fields.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};

/// An event as text. Values other than one printable word are quoted, since peers choose some of
/// them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) message: String,
    pub(super) fields: Vec<(&'static str, String)>,
}

impl From<&str> for Text {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), fields: Vec::new() }
    }
}

impl Text {
    pub(super) fn add(&mut self, name: &'static str, value: &str) {
        match name {
            "message" => value.clone_into(&mut self.message),
            _ => self.fields.push((name, value.to_owned())),
        }
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }
}

impl fmt::Display for Text {
    /// Writes one line without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.message.chars() {
            match letter.is_control() {
                true => letter.escape_default().fmt(f)?,
                false => f.write_char(letter)?,
            }
        }
        for (name, value) in &self.fields {
            let is_word = !value.is_empty()
                && value.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
            match is_word {
                true => write!(f, " {name}={value}")?,
                false => write!(f, " {name}={value:?}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_one_line() {
        let mut text = Text::from("peer disconnected");
        text.add("port", "a");
        text.add("reason", "bad ring\n2026 ERROR forged");
        text.add("uri", "");
        assert_eq!(
            text.to_string(),
            "peer disconnected port=a reason=\"bad ring\\n2026 ERROR forged\" uri=\"\""
        );
        assert!(!Text::from("two\nlines").to_string().contains('\n'));
    }
}

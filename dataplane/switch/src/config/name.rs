//! Names of ports and isolation groups.

use std::fmt;
use std::str::FromStr;

/// 1 to 64 of `A-Z a-z 0-9 . _ -`, a letter or digit first, so that a name is a word in a URL, in a
/// file name and on a command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// The text is not a valid name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("name {0:?}: give 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit")]
pub struct NameError(String);

impl Name {
    const LEN_MAX: usize = 64;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let right = text.len() <= Self::LEN_MAX
            && text.bytes().all(known)
            && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if right { Ok(Self(text.to_owned())) } else { Err(NameError(text.to_owned())) }
    }
}

dray_text::serde_as_text!(Name);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_allows_letters_digits_dot_underscore_hyphen() {
        for right in ["a", "0", "upf-n3.0", "A_b", &"x".repeat(64)] {
            assert_eq!(right.parse::<Name>().unwrap().as_str(), right);
        }
        for wrong in ["", ".", "..", "-a", "a/b", "a b", "ä", "a%20", &"x".repeat(65)] {
            assert_eq!(wrong.parse::<Name>(), Err(NameError(wrong.to_owned())));
        }
    }
}

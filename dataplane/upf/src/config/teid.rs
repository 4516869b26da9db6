//! Tunnel endpoint identifiers (TEIDs) in text: written as `0x9001`, and read in this form, in
//! decimal, or as a number.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

struct Teid(u32);

impl Serialize for Teid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Teid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TeidVisitor)
    }
}

struct TeidVisitor;

impl Visitor<'_> for TeidVisitor {
    type Value = Teid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a TEID: a number up to 0xffffffff, or text such as \"0x9001\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Teid, E> {
        let wrong = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
        u32::try_from(number).map(Teid).map_err(wrong)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Teid, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
        u32::try_from(number).map(Teid).map_err(wrong)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Teid, E> {
        let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16),
            _ => text.parse(),
        };
        number.map(Teid).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

pub(crate) fn serialize<S: Serializer>(teid: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    Teid(*teid).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Teid::deserialize(deserializer).map(|teid| teid.0)
}

/// For a field that may be missing.
pub(crate) mod option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::config::teid::Teid;

    pub(crate) fn serialize<S: Serializer>(
        teid: &Option<u32>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        teid.map(Teid).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u32>, D::Error> {
        Ok(Option::<Teid>::deserialize(deserializer)?.map(|teid| teid.0))
    }
}

/// For a list.
pub(crate) mod list {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::config::teid::Teid;

    pub(crate) fn serialize<S: Serializer>(
        teids: &[u32],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(teids.iter().map(|teid| Teid(*teid)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u32>, D::Error> {
        Ok(Vec::<Teid>::deserialize(deserializer)?.into_iter().map(|teid| teid.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teid_is_read_in_hex_and_decimal_and_written_in_hex() {
        for text in ["36865", "\"0x9001\"", "\"0X9001\"", "\"36865\""] {
            let teid: Teid = serde_json::from_str(text).unwrap();
            assert_eq!(teid.0, 0x9001, "{text}");
            assert_eq!(serde_json::to_string(&teid).unwrap(), "\"0x9001\"");
        }
        for text in ["-1", "4294967296", "1.5", "\"\"", "\"0x\"", "\"0x+1\"", "\"x\"", "[]"] {
            let error = serde_json::from_str::<Teid>(text).err().unwrap().to_string();
            assert!(error.contains("a TEID: a number up to 0xffffffff"), "{text}: {error}");
        }
    }
}

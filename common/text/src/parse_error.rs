//! Errors of parsers in the words of the file's author.

use crate::nearest::advice;

/// Segments of a path that name nothing in the file: the wrapper of `toml` for positions, and
/// serde's word for a place that it did not record.
const INTERNAL: [&str; 2] = ["$__serde_spanned_private_value", "?"];

/// Begin of serde's message about a key that is not there.
const MISSING: &str = "missing field ";

/// Keys at the top of files, by what these files describe and the commands that read them.
const FILES: [(&[&str], &str); 3] = [
    (&["containers", "links"], "a lab: use `dray lab up FILE`"),
    (&["mode", "ports", "table_size"], "a switch: use `dray switch --config FILE`"),
    (
        &["n3", "n6", "generate", "sessions"],
        "a user plane function: use `dray upf --n3 URI --n6 URI --config FILE`",
    ),
];

/// Describes an error of a parser in one line: the key at `path`, as `serde_path_to_error` gives
/// it, then what is wrong and what would be right, instead of serde's names of types.
pub fn parse_error(path: &str, message: &str) -> String {
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(", ");
    let (what, place) = match message.rfind(" at line ") {
        Some(at) => (&message[..at], format!(" ({})", message[at + 4..].trim())),
        None => (&message[..], String::new()),
    };
    let segments = path.split('.').filter(|segment| !INTERNAL.contains(segment));
    let mut key = segments.collect::<Vec<_>>().join(".").trim_matches('.').to_owned();
    let unknown = what.strip_prefix("unknown field `").and_then(|it| it.split('`').next());
    // It is the last one of its own path.
    if let Some(parent) = unknown.and_then(|unknown| key.strip_suffix(unknown)) {
        key = parent.trim_end_matches('.').to_owned();
    }
    let what = match unknown.and_then(subject) {
        Some(subject) if key.is_empty() => format!("this configures {subject}"),
        _ if path == "." && what.starts_with(MISSING) => describe(what) + " at the top level",
        _ => describe(what),
    };
    if key.is_empty() { what + &place } else { format!("{key}: {what}{place}") }
}

/// Returns the line of a byte offset, from 1. An offset at the very end belongs to the last line.
pub fn line_at(text: &str, offset: usize) -> usize {
    let newlines = text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
    (newlines + 1).min(text.lines().count().max(1))
}

/// Returns what the files describe that have this key at the top.
fn subject(key: &str) -> Option<&'static str> {
    FILES.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, subject)| *subject)
}

/// Rewrites a message of serde; other messages stay as they are.
fn describe(message: &str) -> String {
    let after = |start: &str| message.strip_prefix(start);
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    if let Some(rest) = after("unknown field ") {
        let names: Vec<String> = quoted(rest);
        return match &names[..] {
            [key, known @ ..] if !known.is_empty() => {
                format!("unknown key {key:?}: {}", advice(key, known.iter().map(String::as_str)))
            }
            [key, ..] => format!("unknown key {key:?}: leave it out"),
            [] => message.to_owned(),
        };
    }
    if let Some(rest) = after("unknown variant ") {
        let names: Vec<String> = quoted(rest);
        return match &names[..] {
            [value, known @ ..] if !known.is_empty() => {
                format!("{value:?}: {}", advice(value, known.iter().map(String::as_str)))
            }
            _ => message.to_owned(),
        };
    }
    if let Some(rest) = after(MISSING) {
        return format!("key {:?} is missing", rest.trim_matches('`'));
    }
    if let Some(rest) = after("duplicate field ") {
        return format!("key {:?} is given twice", rest.trim_matches('`'));
    }
    if message.starts_with("data did not match any variant") {
        return "not one of the allowed forms".to_owned();
    }
    if message.starts_with("EOF while parsing") {
        return "it ends unfinished".to_owned();
    }
    let mismatch = after("invalid type: ").or_else(|| after("invalid value: "));
    match mismatch.and_then(|rest| rest.split_once(", expected ")) {
        Some((given, expected)) => format!("{}: give {}", value(given), kind_for(given, expected)),
        None => match after("invalid length ").and_then(|rest| rest.split_once(", expected ")) {
            Some((_, expected)) if expected.starts_with("struct ") => {
                format!("a list: give {}", kind(expected))
            }
            Some((count, expected)) => format!("{count} entries: give {}", kind(expected)),
            None => message.to_owned(),
        },
    }
}

/// Returns serde's `unexpected` as it was written.
fn value(given: &str) -> String {
    match given {
        "map" => return "a table".to_owned(),
        "sequence" => return "a list".to_owned(),
        _ => {}
    }
    for sort in ["string", "integer", "floating point", "boolean", "character"] {
        if let Some(value) = given.strip_prefix(sort) {
            return value.trim().trim_matches('`').to_owned();
        }
    }
    given.to_owned()
}

/// Like [`kind`]; what is no number is not told the limits of one, which may be narrower.
fn kind_for(given: &str, expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" if !given.starts_with("integer") => "a whole number".to_owned(),
        _ => kind(expected),
    }
}

/// Returns a type, as serde names it, in words.
fn kind(expected: &str) -> String {
    let most = match expected {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => return "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" => return "a whole number".to_owned(),
        "f32" | "f64" => return "a number".to_owned(),
        "a boolean" => return "true or false".to_owned(),
        "a string" | "a borrowed string" | "a character" => return "text in quotes".to_owned(),
        "a sequence" => return "a list in [ ]".to_owned(),
        "a map" => return "keys with values".to_owned(),
        _ if expected.starts_with("struct ") => return "keys with values".to_owned(),
        _ => return expected.replace('`', ""),
    };
    format!("a whole number from 0 to {most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_at_end_belongs_to_last_line() {
        let lines = [0, 1, 2, 4].map(|offset| line_at("a\nb\n", offset));
        assert_eq!((lines, line_at("", 0)), ([1, 1, 2, 2], 1));
    }

    #[test]
    fn errors_of_parsers_name_the_key_and_what_is_right() {
        for (path, message, expected) in [
            (
                "containers[1].$__serde_spanned_private_value.runn",
                "unknown field `runn`, expected one of `name`, `cpus`, `run`",
                "containers[1]: unknown key \"runn\": did you mean run?",
            ),
            (
                "generate",
                "unknown field `generate`, expected one of `name`, `containers`, `links`",
                "this configures a user plane function: use `dray upf --n3 URI --n6 URI --config FILE`",
            ),
            (
                "speed",
                "unknown field `speed`, expected one of `name`, `containers`, `links`",
                "unknown key \"speed\": give one of name, containers, links",
            ),
            ("a.x", "unknown field `x`, there are no fields", "a: unknown key \"x\": leave it out"),
            (
                "mode",
                "unknown variant `swich`, expected `switch` or `patch`",
                "mode: \"swich\": did you mean switch?",
            ),
            ("?", "missing field `kind`", "key \"kind\" is missing"),
            (".", "missing field `n3`", "key \"n3\" is missing at the top level"),
            ("ports[0]", "duplicate field `uri`", "ports[0]: key \"uri\" is given twice"),
            (
                "mtu",
                "invalid type: string \"big\", expected u16",
                "mtu: \"big\": give a whole number",
            ),
            (
                "mtu",
                "invalid value: integer `-1`, expected u32",
                "mtu: -1: give a whole number from 0 to 4294967295",
            ),
            (
                ".",
                "invalid type: sequence, expected struct SwitchConfig at line 1 column 2",
                "a list: give keys with values (line 1 column 2)",
            ),
            (
                "name",
                "invalid type: boolean `true`, expected a string",
                "name: true: give text in quotes",
            ),
            (
                "users",
                "invalid length 3, expected an array of length 2",
                "users: 3 entries: give an array of length 2",
            ),
            (
                "?",
                "EOF while parsing an object at line 1 column 1",
                "it ends unfinished (line 1 column 1)",
            ),
            (
                ".",
                "invalid length 0, expected struct PortConfig with 18 elements",
                "a list: give keys with values",
            ),
            ("", "invalid basic string\nexpected `\"`", "invalid basic string, expected `\"`"),
        ] {
            assert_eq!(parse_error(path, message), expected);
        }
    }
}

//! Reads result files, and rejects other files by name.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use dray_results::{Measured, MeasuredStreams, Results, SCHEMA, StreamOutcome};
use serde::Deserialize;
use serde_json::Value;

/// One result file.
#[derive(Clone, Debug)]
pub struct Run {
    /// Path of the file, as the user wrote it.
    pub file: String,
    /// Contents of the file.
    pub results: Results,
}

/// Size limit; a full run of all experiments is under 2 MB.
const MAX_BYTES: u64 = 64 << 20;

/// Error for a file that cannot be read as results.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the error messages describe the variants")]
pub enum InputError {
    #[error("{}: cannot be read: {error}", file.display())]
    Unreadable { file: PathBuf, error: std::io::Error },
    #[error("{}: more than {} MiB, the limit for result files", file.display(), MAX_BYTES >> 20)]
    TooLong { file: PathBuf },
    #[error("{}: cut short: the JSON ends unfinished at line {line}", file.display())]
    CutShort { file: PathBuf, line: usize },
    #[error("{}: empty file; give a file that `dray bench --json` wrote", file.display())]
    Empty { file: PathBuf },
    #[error("{}: not text; give a file that `dray bench --json` wrote", file.display())]
    NotText { file: PathBuf },
    #[error("{}: not JSON: {error}; give a file that `dray bench --json` wrote", file.display())]
    NotJson { file: PathBuf, error: serde_json::Error },
    #[error("{}: no `schema` in it; give a file that `dray bench --json` wrote", file.display())]
    NoSchema { file: PathBuf },
    #[error("{}: results of schema version {version}; this dray reads version {SCHEMA}", file.display())]
    OtherSchema { file: PathBuf, version: u64 },
    #[error("{}: not results of schema version {SCHEMA}: {error}", file.display())]
    NotResults { file: PathBuf, error: String },
    #[error("{}: {what}", file.display())]
    Impossible { file: PathBuf, what: String },
}

impl Run {
    /// Returns the file's name without the folder, since reports are shared.
    pub fn name(&self) -> String {
        let name = Path::new(&self.file).file_name();
        name.map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }

    /// Reads a file that `dray bench --json` wrote.
    pub fn read(file: &Path) -> Result<Self, InputError> {
        let named = || file.to_owned();
        let unreadable = |error| InputError::Unreadable { file: named(), error };
        let mut bytes = Vec::new();
        let opened = fs::File::open(file).map_err(unreadable)?;
        opened.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(InputError::TooLong { file: named() });
        }
        let text = str::from_utf8(&bytes).map_err(|_| InputError::NotText { file: named() })?;
        Self::parse(file, text)
    }

    /// Parses `text`, the contents of `file`.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        #[derive(Deserialize)]
        struct Version {
            schema: Option<u64>,
        }
        let named = || file.to_owned();
        if text.trim().is_empty() {
            return Err(InputError::Empty { file: named() });
        }
        let value: Value = serde_json::from_str(text).map_err(|error| {
            if error.is_eof() {
                InputError::CutShort { file: named(), line: error.line() }
            } else {
                InputError::NotJson { file: named(), error }
            }
        })?;
        let version = value.is_object().then(|| Version::deserialize(&value));
        match version.unwrap_or(Ok(Version { schema: None })) {
            Ok(Version { schema: Some(version) }) if version == u64::from(SCHEMA) => {}
            Ok(Version { schema: Some(version) }) => {
                return Err(InputError::OtherSchema { file: named(), version });
            }
            _ => return Err(InputError::NoSchema { file: named() }),
        }
        let results: Results = serde_path_to_error::deserialize(&value).map_err(|error| {
            let error = wrong_field(&value).unwrap_or_else(|| describe("", &error));
            InputError::NotResults { file: named(), error }
        })?;
        if let Some(what) = impossible(&results) {
            return Err(InputError::Impossible { file: named(), what });
        }
        Ok(Self { file: file.display().to_string(), results })
    }
}

/// Returns an error for the first invalid field of a measured row. The row's outcome is an untagged
/// enum, whose own error does not name the field.
fn wrong_field(value: &Value) -> Option<String> {
    let rows = |list: &str| value[list].as_array().into_iter().flatten().enumerate();
    let is_measured = |row: &Value| row.get("skipped").is_none() && row.get("isolation").is_none();
    let frames = rows("results").filter(|(_, row)| is_measured(row)).find_map(|(number, row)| {
        let error = serde_path_to_error::deserialize::<_, Measured>(row).err()?;
        Some(describe(&format!("results[{number}]."), &error))
    });
    let streams = || {
        rows("streams").filter(|(_, row)| is_measured(row)).find_map(|(number, row)| {
            let error = serde_path_to_error::deserialize::<_, MeasuredStreams>(row).err()?;
            Some(describe(&format!("streams[{number}]."), &error))
        })
    };
    frames.or_else(streams)
}

fn describe(parent: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    dray_text::parse_error(&format!("{parent}{}", error.path()), &error.inner().to_string())
}

/// Returns an error for the first figure that cannot have been measured and would make a chart
/// meaningless.
fn impossible(results: &Results) -> Option<String> {
    // The limit is far above what any machine can do, and far below where sums overflow.
    let possible = |value: f64| (0.0..1e15).contains(&value);
    for (number, row) in results.results.iter().enumerate() {
        let of = |field: &str, value: f64| {
            (!possible(value))
                .then(|| format!("results[{number}].{field} is {value:e}; allowed: 0 to 1e15"))
        };
        let found = row.offered_pps.and_then(|pps| of("offered_pps", pps));
        let found = found.or_else(|| row.paper_pps.and_then(|pps| of("paper_pps", pps)));
        let found = found.or_else(|| of("frame_size", row.frame_size as f64));
        let found = found.or_else(|| {
            let measured = row.measured()?;
            let total = measured.cpu.total;
            let mut fields = vec![
                ("sent_pps", measured.sent_pps),
                ("received_pps", measured.received_pps),
                ("loss_ratio", measured.loss_ratio),
                ("cpu.elapsed_s", measured.cpu.elapsed_s),
                ("cpu.total.user_s", total.user_s),
                ("cpu.total.system_s", total.system_s),
                ("cpu.total.softirq_s", total.softirq_s),
                ("cycles_per_frame", measured.cycles_per_frame.unwrap_or(0.0)),
            ];
            fields.extend(measured.samples_pps.iter().map(|sample| ("samples_pps", *sample)));
            fields.into_iter().find_map(|(field, value)| of(field, value))
        });
        if found.is_some() {
            return found;
        }
    }
    for (number, row) in results.streams.iter().enumerate() {
        let StreamOutcome::Measured(measured) = &row.outcome else { continue };
        let mut rates = measured.samples_bps.iter().chain(&measured.trials_bps);
        if !possible(measured.goodput_bps) || rates.any(|rate| !possible(*rate)) {
            return Some(format!("streams[{number}] has an impossible rate; allowed: 0 to 1e15"));
        }
    }
    let limit = results.limits.iter().find(|limit| !possible(limit.pps));
    limit.map(|limit| format!("limits: pps is {:e}; allowed: 0 to 1e15", limit.pps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn refused(text: &str) -> String {
        Run::parse(Path::new("some.json"), text).unwrap_err().to_string()
    }

    #[test]
    fn invalid_result_file_error_gives_reason() {
        let good = sample::text();
        assert!(Run::parse(Path::new("some.json"), &good).is_ok());
        for end in [1, good.len() / 3, good.len() - 3] {
            let message = refused(&good[..end]);
            assert!(message.starts_with("some.json: cut short"), "{message}");
        }
        for (text, what) in [
            (" \n", "empty file"),
            ("\u{0}ELF", "not JSON"),
            ("[1, 2", "cut short"),
            ("[1, 2]", "no `schema`"),
            ("{}", "no `schema`"),
            ("{\"schema\": \"1\"}", "no `schema`"),
            ("{\"schema\": 7}", "schema version 7; this dray reads version 1"),
            ("{\"schema\": 1}", "key \"dray\" is missing"),
        ] {
            let message = refused(text);
            assert!(message.starts_with("some.json: ") && message.contains(what), "{message}");
        }
        let message = refused(&good.replacen("\"burst\":64", "\"burst\":\"many\"", 1));
        assert!(message.contains("results[0]"), "{message}");
        let fast = sample::row("veth/udp", 64).with("received_pps", "\"fast\"");
        let message = refused(&sample::results(&[fast]));
        assert!(message.contains("results[0].received_pps: \"fast\": give a number"), "{message}");
        let deep = "[".repeat(100_000);
        assert!(refused(&deep).starts_with("some.json: "));
    }

    #[test]
    fn results_without_table_have_the_list_layout() {
        let run = sample::run(&sample::text());
        assert_eq!(run.results.table, dray_results::Table::default());
        assert_eq!(run.results.table.layout, dray_results::Layout::List);
    }

    #[test]
    fn impossible_figures_are_refused() {
        for wrong in ["-1.0", "1e300"] {
            let row = sample::row("veth/udp", 64).with("received_pps", wrong);
            let message = refused(&sample::results(&[row]));
            assert!(message.contains("results[0].received_pps"), "{message}");
        }
    }

    #[test]
    fn missing_and_endless_files_are_refused() {
        let missing = Run::read(Path::new("/nosuch/file.json")).unwrap_err().to_string();
        assert!(missing.starts_with("/nosuch/file.json: cannot be read"), "{missing}");
        let endless = Run::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.starts_with("/dev/zero: more than 64 MiB"), "{endless}");
    }
}

//! Code that all commands share: failures, output, signals.

use std::io::Write;
use std::process::ExitCode;

use dray_datapath::Cancel;

/// Why a command failed.
pub(crate) enum Failure {
    /// Invalid request: exit status 2.
    Usage(anyhow::Error),
    /// Failure: exit status 1.
    Failed(anyhow::Error),
    /// Something got slower: exit status 3.
    #[cfg(feature = "laboratory")]
    Slower(anyhow::Error),
    /// Nothing got slower, but not everything could be judged: exit status 4.
    #[cfg(feature = "laboratory")]
    NotJudged(anyhow::Error),
}

/// Checks a command line of `dray`; the error is one line.
#[cfg(feature = "laboratory")]
pub(crate) type CheckCommand = fn(&[String]) -> Result<(), String>;

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Failure {
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }
}

/// Failure for an invalid request, formatted like `format!`.
macro_rules! usage {
    ($($text:tt)+) => {
        $crate::common::Failure::Usage(anyhow::anyhow!($($text)+))
    };
}
pub(crate) use usage;

pub(crate) fn report_error(message: &str, status: u8) -> ExitCode {
    dray_daemon::log::report_failure(message);
    ExitCode::from(status)
}

/// Returns clap's message without its usage lines, in one line with what would be right.
pub(crate) fn one_line(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let text = error.to_string();
    let is_advice = |line: &str| line.starts_with("tip: ") || line.starts_with("For more info");
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty() && !is_advice(line)).collect();
    let message = lines.join(" ");
    let message = in_words(message.strip_prefix("error: ").unwrap_or(&message));
    let message = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => without_repeated_port(&message, value),
        _ => message,
    };
    let suggested = |kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name.clone()),
        ContextValue::Strings(names) => names.first().cloned(),
        _ => None,
    };
    let kinds =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    if let Some(name) = kinds.into_iter().find_map(suggested) {
        return format!("{message}: did you mean {name}?");
    }
    // The words of the usage line up to the first argument are the command.
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
    // A word without a dash, where the command follows a separator.
    let is_word = message.contains("argument '") && !message.contains("argument '-");
    if is_word && usage.is_some_and(|usage| usage.contains(" -- <")) {
        return format!("{message}: give -- before the command");
    }
    if is_word && usage.is_some_and(|usage| usage.contains("--port <")) {
        return format!("{message}: give a port as --port URI, for example --port raw:eth0");
    }
    let is_word = |word: &&str| !word.starts_with(['[', '<', '-']);
    let command = usage.map(|usage| usage.split(' ').take_while(is_word).collect::<Vec<_>>());
    match (error.kind(), command) {
        (ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand, Some(command)) => {
            format!("{message}: `{} --help` shows what there is", command.join(" "))
        }
        _ => message,
    }
}

/// Leaves out the URI that an error of a port begins with, where `value` was named before.
fn without_repeated_port(message: &str, value: &str) -> String {
    let repeated = || {
        let (start, rest) = message.split_once("': port \"")?;
        let (uri, what) = rest.split_once("\": ")?;
        value.ends_with(uri).then(|| format!("{start}': {what}"))
    };
    repeated().unwrap_or_else(|| message.to_owned())
}

/// Replaces the words of Rust's number parsers and clap's ranges at the end of a message.
fn in_words(message: &str) -> String {
    let Some((start, end)) = message.rsplit_once(": ") else { return message.to_owned() };
    let parts = end.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    match (parts, end) {
        (Some((first, last)), _) => format!("{start}: give {first} to {last}"),
        (None, "invalid digit found in string" | "cannot parse integer from empty string") => {
            format!("{start}: give a whole number")
        }
        (None, "invalid IPv4 address syntax") => {
            format!("{start}: give four numbers, for example 198.18.0.1")
        }
        (None, "number too large to fit in target type") => format!("{start}: too large"),
        (None, "number too small to fit in target type") => format!("{start}: too small"),
        _ => message.to_owned(),
    }
}

/// Writes a command's result. A reader that has seen enough (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Writes a command's result as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&json(value)?)
}

/// Returns a command's result as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Returns true if standard output is a terminal and the user wants colours there.
#[cfg(feature = "top")]
pub(crate) fn has_colour() -> bool {
    use std::io::IsTerminal;
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Formats a rate with three digits and `k`, `M` or `G`.
pub(crate) fn scaled(rate: f64) -> String {
    if rate < 999.5 {
        return format!("{rate:.0}");
    }
    let (number, prefix) = with_prefix(rate, 3);
    number + prefix
}

/// Formats a number with a number of digits, in units of the returned prefix: none, `k`, `M` or
/// `G`.
pub(crate) fn with_prefix(number: f64, digits: usize) -> (String, &'static str) {
    // Half a unit of the last digit: numbers from there on round to the next power of ten.
    let rounds_to = |power: f64| power - 0.5 * power / 10_f64.powi(digits as i32);
    let factors = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let reached = factors.into_iter().find(|(factor, _)| number >= rounds_to(*factor));
    let (factor, prefix) = reached.unwrap_or((1.0, ""));
    let number = number / factor;
    let more = [10.0, 100.0].into_iter().filter(|power| number >= rounds_to(*power)).count();
    (format!("{number:.0$}", digits - 1 - more), prefix)
}

/// Cancels the running command in good order on Ctrl-C, SIGTERM or a closed terminal.
pub(crate) fn cancel_on_signals() -> anyhow::Result<Cancel> {
    use signal_hook::consts::SIGHUP;
    let cancel = cancel_on_end()?;
    signal_hook::flag::register(SIGHUP, cancel.flag())?;
    Ok(cancel)
}

/// Like [`cancel_on_signals`], for a command to which SIGHUP means something else.
pub(crate) fn cancel_on_end() -> anyhow::Result<Cancel> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let cancel = Cancel::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, cancel.flag())?;
    }
    Ok(cancel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (rate, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (999.9, "1.00k"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (999_999.0, "1.00M"),
            (1.5e9, "1.50G"),
        ] {
            assert_eq!(scaled(rate), text);
        }
    }
}

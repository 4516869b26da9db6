//! Record of the third-party programs started in a run, so that others can reproduce it.

use std::ffi::OsStr;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Programs that were started, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Names and versions of the programs, as they print them.
    pub versions: Vec<String>,
    /// Command lines of the programs, for a shell.
    pub commands: Vec<String>,
}

impl Record {
    pub(super) fn add_version(&mut self, version: &str) {
        if !self.versions.iter().any(|other| other == version) {
            self.versions.push(version.to_owned());
        }
    }

    /// Adds a command, unless it is there already, as from an earlier trial.
    pub(super) fn add_command(&mut self, command: &Command) {
        let line = line_of(command);
        if !self.commands.contains(&line) {
            self.commands.push(line);
        }
    }
}

/// Formats a command as a line for a shell, with the variables that were set for it.
fn line_of(command: &Command) -> String {
    let set = |(name, value): (&OsStr, Option<&OsStr>)| {
        let name = name.to_string_lossy();
        // Every environment has a PATH.
        let value = value.filter(|_| name != "PATH")?;
        Some(format!("{name}={}", quoted(&value.to_string_lossy())))
    };
    // `/proc/self/exe` names this program only within this process.
    let program = std::fs::read_link(command.get_program())
        .ok()
        .filter(|_| command.get_program() == "/proc/self/exe")
        .map_or_else(|| command.get_program().to_owned(), Into::into);
    let words = std::iter::once(&*program).chain(command.get_args());
    let words = words.map(|word| quoted(&word.to_string_lossy()));
    command.get_envs().filter_map(set).chain(words).collect::<Vec<_>>().join(" ")
}

/// Formats words as a line for a shell.
pub fn command_line(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let words = words.into_iter().map(|word| quoted(&word.as_ref().to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

/// Quotes a word, unless a shell takes it literally.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_survive_a_shell() {
        let words = ["plain", "--a=b,c", "two words", "", "it's", "$HOME", "a;b", "*", "\\"];
        let script = format!("printf '%s\\n' {}", command_line(words));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output.split_terminator('\n').collect::<Vec<_>>(), words);
        assert_eq!(command_line(["dray", "bench"]), "dray bench");
    }

    #[test]
    fn commands_are_recorded_once_with_environment() {
        let mut record = Record::default();
        for _ in 0..2 {
            let mut command = Command::new("engine");
            command.env_clear().env("PATH", "/bin").env("HOME", "/a b").args(["run", "x"]);
            record.add_command(&command);
            record.add_version("Engine 1");
        }
        assert_eq!(record.commands, ["HOME='/a b' engine run x"]);
        assert_eq!(record.versions, ["Engine 1"]);
        let own = std::env::current_exe().unwrap();
        assert_eq!(
            line_of(Command::new("/proc/self/exe").arg("x")),
            format!("{} x", own.display())
        );
    }
}

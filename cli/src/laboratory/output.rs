//! Destinations of a command's result: a file is replaced as a whole, or stays as it was.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

use crate::common::{Failure, has_colour, print, usage};

/// Colours a table if standard output is a terminal that supports colours: the lines above a rule
/// are bold, and marked figures are highlighted.
pub(crate) fn colour(table: &str) -> String {
    if has_colour() { coloured(table) } else { table.to_owned() }
}

fn coloured(table: &str) -> String {
    const RULE: char = '─';
    let lines: Vec<&str> = table.lines().collect();
    let below = |number: usize| lines.get(number + 1).is_some_and(|line| line.starts_with(RULE));
    // Two lines of names and units.
    let is_head = |number: usize| below(number) || below(number + 1);
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let style = if is_head(number) {
            "1"
        } else if line.starts_with(RULE) {
            "2"
        } else if line.split_whitespace().any(|word| is_marked(word, '!')) || line.starts_with("! ")
        {
            "31"
        } else if line.split_whitespace().any(|word| is_marked(word, '~')) || line.starts_with("~ ")
        {
            "33"
        } else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        text.push_str(&format!("\x1b[{style}m{line}\x1b[0m\n"));
    }
    text
}

/// Returns true if the word is a figure with that mark.
fn is_marked(word: &str, mark: char) -> bool {
    word.strip_suffix(mark).is_some_and(|figure| figure.parse::<f64>().is_ok())
}

/// Destination of a result.
pub(crate) struct Output {
    to: Destination,
    /// The option that named the destination, with its value.
    named: String,
    /// The path as the user gave it.
    path: PathBuf,
}

enum Destination {
    Stdout,
    /// A file, which is replaced as a whole.
    File(PathBuf),
    /// An existing special file (`/dev/null`, a pipe), which is written to and kept.
    Special(File),
}

impl Output {
    /// Opens `path`, the value of `option`; `-` is standard output. Called early, so that an
    /// unwritable destination is reported before there is a result.
    pub(crate) fn open(option: &str, path: &Path) -> anyhow::Result<Self> {
        let named = format!("{option} {}", path.display());
        let to = Destination::open(path).with_context(|| format!("{named}: cannot write there"))?;
        Ok(Self { to, named, path: path.to_owned() })
    }

    /// Like [`open`](Self::open), for a file that must not exist yet unless `force` is true. A file
    /// without contents is no obstacle.
    pub(crate) fn create(option: &str, path: &Path, force: bool) -> Result<Self, Failure> {
        let output = Self::open(option, path)?;
        let has_contents = |path: &Path| path.metadata().is_ok_and(|it| it.len() > 0);
        match output.file() {
            Some(path) if !force && has_contents(path) => Err(usage!(
                "{}: already exists; give another name, --force to replace it, or --resume to \
                 continue the run that wrote it",
                output.named
            )),
            _ => Ok(output),
        }
    }

    /// Standard output by default, without an option.
    pub(crate) fn stdout() -> Self {
        Self { to: Destination::Stdout, named: String::new(), path: PathBuf::new() }
    }

    /// Returns true for standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.to, Destination::Stdout)
    }

    /// Writes the complete result.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        match self.to {
            Destination::Stdout => print(text),
            Destination::Special(mut file) => {
                Ok(file.write_all(text.as_bytes()).context(self.named)?)
            }
            Destination::File(path) => Ok(replace(&path, text).context(self.named)?),
        }
    }

    /// Saves the result so far, if a later one can replace it.
    pub(crate) fn keep(&self, text: &str) -> anyhow::Result<()> {
        match &self.to {
            Destination::File(path) => replace(path, text).with_context(|| self.named.clone()),
            Destination::Stdout | Destination::Special(_) => Ok(()),
        }
    }

    /// Returns the path, as the user gave it, if the destination is a file that is replaced.
    pub(crate) fn file(&self) -> Option<&Path> {
        matches!(self.to, Destination::File(_)).then_some(&*self.path)
    }
}

impl Destination {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // The target of a symbolic link is replaced, not the link.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            return Ok(Self::Special(open_special(path)?));
        }
        // An unnamed file, of which nothing is left whatever happens.
        tempfile::tempfile_in(folder(path))?;
        Ok(Self::File(path.to_owned()))
    }
}

/// Replaces `path` with a file that contains `text`, atomically.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut new = NamedTempFile::new_in(folder(path))?;
    new.write_all(text.as_bytes())?;
    make_readable(new.as_file())?;
    new.persist(path)?;
    Ok(())
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Opens a device or a pipe. A pipe without a reader is an error; an ordinary open would wait for a
/// reader forever.
fn open_special(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file.into())
}

/// Temporary files are private; results are meant to be shared.
fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::coloured;

    #[test]
    fn table_heads_are_bold_and_marks_coloured() {
        let table = "a    b\n     B\n──────\nx   1\nx  1!\nx  2~\n! wrong\nno!\n";
        let bold = |line: &str| format!("\x1b[1m{line}\x1b[0m\n");
        let expected = bold("a    b")
            + &bold("     B")
            + "\x1b[2m──────\x1b[0m\nx   1\n\x1b[31mx  1!\x1b[0m\n\x1b[33mx  2~\x1b[0m\n\
               \x1b[31m! wrong\x1b[0m\nno!\n";
        assert_eq!(coloured(table), expected);
    }
}

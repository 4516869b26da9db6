//! `dray lab logs`: what the commands in the containers have written.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use dray_lab::standing::{LabState, StandingLab};

use super::find::{container, find, names};
use crate::common::{Failure, usage};

/// Interval at which logs are read.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the state of the commands is requested from the keeper.
const STATE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the lab; not needed if one lab is up.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Name of the container; without it, all, each line after its container's name.
    container: Option<String>,
    /// Show what the commands write from now on too, until they have ended.
    #[arg(short, long)]
    follow: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let lab = find(arguments.lab.as_deref())?;
    let state = lab.state()?;
    let mut logs = open(&state, arguments.container.as_deref())?;
    match show(&mut logs, &lab, arguments.follow, &mut io::stdout().lock()) {
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Opens the log of one container, or those of all.
fn open(state: &LabState, only: Option<&str>) -> Result<Vec<Log>, Failure> {
    let with: Vec<_> =
        state.containers.iter().filter(|container| container.program.is_some()).collect();
    let chosen = match only {
        Some(name) => vec![container(state, name)?],
        None => with.clone(),
    };
    let width = chosen.iter().map(|container| container.name.len()).max().unwrap_or_default();
    let mut logs = Vec::new();
    for container in chosen {
        let Some(program) = &container.program else {
            let (lab, name) = (&state.name, &container.name);
            let others = match names(&with) {
                names if names.is_empty() => "no container of this lab has one".to_owned(),
                names => format!("give one of {names}"),
            };
            return Err(usage!("lab {lab}: container {name} has no `run` command; {others}"));
        };
        let prefix = match only {
            Some(_) => String::new(),
            None => format!("{:width$} | ", container.name),
        };
        logs.push(Log::open(Path::new(&program.log), prefix)?);
    }
    if logs.is_empty() {
        let what = "no container has a `run` command, so nothing is logged";
        return Err(anyhow!("lab {}: {what}", state.name).into());
    }
    Ok(logs)
}

/// Writes the logs; if `follow` is set, until all commands have ended or the lab is down.
fn show(
    logs: &mut [Log],
    lab: &StandingLab,
    follow: bool,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut asked = Instant::now() - STATE_INTERVAL;
    loop {
        // Checked before the logs are read, so that the last output of commands is shown.
        let is_due = asked.elapsed() >= STATE_INTERVAL || logs.iter().any(|log| !log.path.exists());
        let is_over = !follow || (is_due && has_ended(logs, lab));
        if is_due {
            asked = Instant::now();
        }
        logs.iter_mut().try_for_each(|log| log.copy(output))?;
        if is_over {
            logs.iter_mut().try_for_each(|log| log.finish(output))?;
            return output.flush();
        }
        output.flush()?;
        thread::sleep(INTERVAL);
    }
}

fn has_ended(logs: &[Log], lab: &StandingLab) -> bool {
    // A keeper without a reply is taking the lab down. It removes the logs, which stay open here.
    let Ok(state) = lab.state() else { return true };
    let programs = state.containers.iter().filter_map(|container| container.program.as_ref());
    let shown = |log: &str| logs.iter().any(|shown| shown.path == Path::new(log));
    programs.filter(|program| shown(&program.log)).all(|program| program.ended.is_some())
}

/// A command's output.
struct Log {
    path: PathBuf,
    file: File,
    prefix: String,
    /// Beginning of a line whose end has not been written yet.
    line: Vec<u8>,
}

impl Log {
    fn open(path: &Path, prefix: String) -> Result<Self, Failure> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), file, prefix, line: Vec::new() })
    }

    /// Copies the complete lines that have been written since the last call.
    fn copy(&mut self, output: &mut impl Write) -> io::Result<()> {
        let mut chunk = vec![0; 1 << 16];
        loop {
            let len = self.file.read(&mut chunk)?;
            if len == 0 {
                return Ok(());
            }
            for piece in chunk[..len].split_inclusive(|&byte| byte == b'\n') {
                self.line.extend_from_slice(piece);
                if piece.ends_with(b"\n") {
                    output.write_all(self.prefix.as_bytes())?;
                    output.write_all(&self.line)?;
                    self.line.clear();
                }
            }
        }
    }

    /// Writes the last line if it is incomplete.
    fn finish(&mut self, output: &mut impl Write) -> io::Result<()> {
        if !self.line.is_empty() {
            self.line.push(b'\n');
            output.write_all(self.prefix.as_bytes())?;
            output.write_all(&self.line)?;
            self.line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_copied_once_and_whole() {
        let mut written = tempfile::NamedTempFile::new().unwrap();
        let mut log = Log::open(written.path(), "a | ".to_owned()).ok().unwrap();
        let mut output = Vec::new();
        let mut shown = |log: &mut Log, finish: bool| {
            output.clear();
            log.copy(&mut output).unwrap();
            if finish {
                log.finish(&mut output).unwrap();
            }
            String::from_utf8(output.clone()).unwrap()
        };
        written.write_all(b"one\ntw").unwrap();
        assert_eq!(shown(&mut log, false), "a | one\n");
        written.write_all(b"o\nthree").unwrap();
        assert_eq!(shown(&mut log, false), "a | two\n");
        assert_eq!(shown(&mut log, true), "a | three\n");
        assert_eq!(shown(&mut log, true), "");
    }
}

//! Finds standing labs and talks to their keepers.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::{LabState, Request, SOCKET, named};
use crate::LabError;

/// Time limit for a keeper to reply, and to take its lab down.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lab that is up or coming up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StandingLab {
    name: String,
    dir: PathBuf,
}

/// Returns all standing labs, by name. Only root can see them.
pub fn find_all() -> Result<Vec<StandingLab>, LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::NotPermitted);
    }
    let mut labs: Vec<_> =
        named().into_iter().map(|(name, dir)| StandingLab { name, dir }).collect();
    labs.sort();
    Ok(labs)
}

/// Returns the lab of that name; without a name, the only lab.
pub fn find(name: Option<&str>) -> Result<StandingLab, LabError> {
    let labs = find_all()?;
    let names: Vec<_> = labs.iter().map(|lab| lab.name.clone()).collect();
    let names = names.join(", ");
    let wrong = |what| Err(LabError::NoSuchLab { what });
    let mut chosen = labs.into_iter().filter(|lab| name.is_none_or(|name| lab.name == name));
    match (chosen.next(), chosen.next(), name) {
        (Some(lab), None, _) => Ok(lab),
        (Some(_), Some(_), _) => {
            wrong(format!("several labs are up: {names}; give the name of one"))
        }
        (None, ..) if names.is_empty() => {
            wrong("no lab is up; start one with `dray lab up FILE.toml`".to_owned())
        }
        (None, _, name) => {
            let name = name.unwrap_or_default();
            wrong(format!("no such lab: {name:?}; labs that are up: {names}"))
        }
    }
}

impl StandingLab {
    /// Returns the name of the lab.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the state of the lab.
    pub fn state(&self) -> Result<LabState, LabError> {
        let stream = self.ask(Request::State)?;
        let answer = io::read_to_string(stream).map_err(|error| self.failed(&error))?;
        serde_json::from_str(&answer).map_err(|error| self.failed(&error))
    }

    /// Takes the lab down. When this returns without an error, nothing of the lab is left.
    pub fn down(&self) -> Result<(), LabError> {
        let mut stream = self.ask(Request::Down)?;
        stream.read_to_end(&mut Vec::new()).map_err(|error| self.failed(&error))?;
        if self.dir.exists() {
            return Err(self.failed(&"not removed completely; try `dray lab clean`"));
        }
        Ok(())
    }

    fn ask(&self, request: Request) -> Result<UnixStream, LabError> {
        let mut line = serde_json::to_vec(&request).expect("requests are plain data");
        line.push(b'\n');
        let stream = UnixStream::connect(self.dir.join(SOCKET)).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(&line)?;
            Ok(stream)
        });
        stream.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.failed(&"coming up or going down; try again"),
            _ => self.failed(&error),
        })
    }

    fn failed(&self, what: &dyn std::fmt::Display) -> LabError {
        LabError::Standing { lab: self.name.clone(), what: what.to_string() }
    }
}

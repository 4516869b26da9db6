//! Finds standing labs and talks to their keepers.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::{CommandEnd, LabState, Request, SOCKET, named};
use crate::{LabError, cgroup};

/// Time limit for a keeper to reply, and to take its lab down.
const TIMEOUT: Duration = Duration::from_secs(30);

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
        let stream = self.request(Request::State)?;
        let answer = io::read_to_string(stream).map_err(|error| self.failed(&error))?;
        serde_json::from_str(&answer).map_err(|error| self.failed(&error))
    }

    /// Takes the lab down, and returns how its commands ended. When this returns without an error,
    /// no directory and no control group of the lab is left.
    pub fn down(&self) -> Result<Vec<CommandEnd>, LabError> {
        let stream = self.request(Request::Down)?;
        let answer = io::read_to_string(stream).map_err(|error| self.failed(&error))?;
        let owner = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let left: Vec<_> = cgroup::left_by(&owner).into_iter().chain(self.left_dir()).collect();
        if let Some(path) = left.first() {
            let path = path.display();
            return Err(self.failed(&format!("{path} was not removed; try `dray lab clean`")));
        }
        serde_json::from_str(&answer).map_err(|_| self.failed(&"its keeper ended without a reply"))
    }

    fn left_dir(&self) -> Option<PathBuf> {
        self.dir.exists().then(|| self.dir.clone())
    }

    fn request(&self, request: Request) -> Result<UnixStream, LabError> {
        let mut line = serde_json::to_vec(&request).expect("requests are plain data");
        line.push(b'\n');
        let stream = UnixStream::connect(self.dir.join(SOCKET)).and_then(|mut stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
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

//! Topologies as files: containers, the programs that run in them, and the links between them.
//!
//! A file is read and checked as a whole before anything is created. Each error gives the line and
//! what is allowed.

mod card;
mod check;
mod command;
mod file;
mod forwarders;
mod network;
mod plan;
mod svg;

use std::path::Path;

pub use check::check_name;
pub(crate) use command::dray_call;
pub use network::{Network, NetworkError};
pub use plan::{ContainerPlan, EndPlan, HOST, LinkPlan, Topology};
pub use svg::{draw, draw_live};

/// Error for an unusable file: one line with the file, its line, the value, and what is allowed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file}{}: {what}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct TopologyError {
    file: String,
    /// Line number, from 1.
    pub line: Option<usize>,
    what: String,
}

impl Topology {
    /// Reads and checks a file. `cpus` are the available CPUs; `check_command` returns what is
    /// wrong with the words of a command line that begins with `dray`.
    pub fn load(
        path: &Path,
        cpus: &[usize],
        check_command: &dyn Fn(&[String]) -> Result<(), String>,
    ) -> Result<(Self, String), TopologyError> {
        let file = path.display().to_string();
        let failed = |error: std::io::Error| TopologyError {
            file: file.clone(),
            line: None,
            what: error.to_string(),
        };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Ok((Self::read(&file, &text, cpus, check_command)?, text))
    }

    /// Reads and checks `text`. `file` appears only in errors, and its stem names the topology if
    /// the text does not.
    pub fn read(
        file: &str,
        text: &str,
        cpus: &[usize],
        check_command: &dyn Fn(&[String]) -> Result<(), String>,
    ) -> Result<Self, TopologyError> {
        let wrong = |wrong: file::Wrong| TopologyError {
            file: file.to_owned(),
            line: wrong.at.map(|at| dray_text::line_at(text, at)),
            what: wrong.what,
        };
        let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let read = file::File::read(text).map_err(wrong)?;
        check::check(&read, &stem, cpus, check_command).map_err(wrong)
    }
}

#[cfg(test)]
mod tests;

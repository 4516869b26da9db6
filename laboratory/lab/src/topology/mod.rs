//! Topologies as files: containers, the programs that run in them, and the links between them.
//!
//! A file is read and checked as a whole before anything is created. Each error gives the line and
//! what is allowed.

mod card;
mod check;
mod file;
mod forwarders;
mod network;
mod svg;

use std::net::Ipv4Addr;
use std::path::Path;

pub use check::check_name;
pub use network::{Network, NetworkError};
pub use svg::{draw, draw_live};

use crate::LinkKind;
use crate::link::Functions;

/// Name of the container that represents the host and is in every lab.
pub const HOST: &str = "host";

/// A checked topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Default name of a lab with this topology.
    pub name: String,
    /// Containers, without the host.
    pub containers: Vec<ContainerPlan>,
    /// Links, in the order in which they are created.
    pub links: Vec<LinkPlan>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPlan {
    /// Name of the container, and its host name inside.
    pub name: String,
    /// CPUs that it may use; empty = all CPUs of the lab.
    pub cpus: Vec<usize>,
    /// Shell command line, started once all links exist.
    pub run: Option<String>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Kind of the link.
    pub kind: LinkKind,
    /// Ends: two, or more if the kind joins more than two.
    pub ends: Vec<EndPlan>,
    /// IPv4 network of its ends, if they have addresses.
    pub network: Option<Network>,
    /// MTU of its interfaces, in bytes.
    pub mtu: u32,
    /// CPU of its switch, if it has one.
    pub cpu: Option<usize>,
    /// Network card of the machine whose virtual functions become the ends, for kinds that need a
    /// card.
    pub parent: Option<String>,
    /// Settings of those virtual functions.
    pub functions: Functions,
    /// True if the programs at its ends attach their own XDP programs.
    pub xdp_programs: bool,
}

/// End of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPlan {
    /// Name of the container.
    pub container: String,
    /// Port number in that container, from 0, in the order of the links.
    pub port: usize,
    /// Name of the port in the container: an interface's name, or `socketN`.
    pub name: String,
    /// Address in the link's network.
    pub address: Option<Ipv4Addr>,
}

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

    /// Returns the ports of a container, each with its link.
    pub fn ports(&self, container: &str) -> impl Iterator<Item = (&LinkPlan, &EndPlan)> {
        let ends = self.links.iter().flat_map(|link| link.ends.iter().map(move |end| (link, end)));
        ends.filter(move |(_, end)| end.container == container)
    }

    /// Returns true if a link ends at the host.
    pub fn has_host(&self) -> bool {
        self.ports(HOST).next().is_some()
    }
}

impl LinkPlan {
    /// Returns an end's address with the prefix length, such as `10.0.0.1/24`.
    pub fn address(&self, end: &EndPlan) -> Option<String> {
        let (network, address) = (self.network?, end.address?);
        Some(format!("{address}/{}", network.prefix_len()))
    }
}

/// Returns the words of a command line that calls `dray`; `None` if it calls another program or
/// uses shell syntax other than quotes and variables.
pub(crate) fn dray_call(line: &str) -> Option<Vec<String>> {
    const MARKS: [&str; 7] = ["|", ";", "<", ">", "`", "$(", "&&"];
    let words = words(line);
    let is_call = words.first()? == "dray" && !MARKS.iter().any(|mark| line.contains(mark));
    is_call.then_some(words)
}

/// Splits a command line into words, handling quotes as a shell does.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests;

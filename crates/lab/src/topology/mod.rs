//! Topologies as files: containers, what runs in them, and the links between them.
//!
//! A file is read and checked as a whole before anything is made; what is wrong is named with its line
//! and what would be right.

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
pub use svg::draw;

use crate::LinkKind;
use crate::link::Functions;

/// The container that every lab has: it stands for the host.
pub const HOST: &str = "host";

/// What a file says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// What a lab of it is called, unless told otherwise.
    pub name: String,
    /// The containers, without the host.
    pub containers: Vec<ContainerPlan>,
    /// The links, in the order in which they are made.
    pub links: Vec<LinkPlan>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPlan {
    /// Its name, and its host name inside.
    pub name: String,
    /// The CPUs that it may use; none: all that its lab may.
    pub cpus: Vec<usize>,
    /// A command line for the shell, started once all links are there.
    pub run: Option<String>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// How it is wired.
    pub kind: LinkKind,
    /// Who is at it: two, or more where the kind joins more.
    pub ends: Vec<EndPlan>,
    /// The IPv4 network of its ends, where they have addresses.
    pub network: Option<Network>,
    /// The MTU of its interfaces, in bytes.
    pub mtu: u32,
    /// The CPU of its switch, where it has one.
    pub cpu: Option<usize>,
    /// The network card of the machine's whose virtual functions its ends get, where the kind needs one.
    pub parent: Option<String>,
    /// What those are to be.
    pub functions: Functions,
    /// The programs at its ends attach XDP programs of their own.
    pub xdp_programs: bool,
}

/// A link's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPlan {
    /// The container's name.
    pub container: String,
    /// Its number among the ports of that container, from 0, in the order of the links.
    pub port: usize,
    /// What the port is called there: an interface's name, or `socketN`.
    pub name: String,
    /// Its address in the link's network.
    pub address: Option<Ipv4Addr>,
}

/// A file cannot be used; one line that names the file, its line, what was given and what would be
/// right.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file}{}: {what}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct TopologyError {
    file: String,
    /// Counted from 1.
    pub line: Option<usize>,
    what: String,
}

impl Topology {
    /// Reads and checks a file. `cpus` are the CPUs that there are; `check_command` says what is wrong
    /// with the words of a command line that begins with `dray`.
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

    /// The same for the `text` of `file`, which is only named in errors, and from which the topology has
    /// its name where the text gives none.
    pub fn read(
        file: &str,
        text: &str,
        cpus: &[usize],
        check_command: &dyn Fn(&[String]) -> Result<(), String>,
    ) -> Result<Self, TopologyError> {
        let wrong = |wrong: file::Wrong| TopologyError {
            file: file.to_owned(),
            line: wrong.at.map(|at| file::line(text, at)),
            what: wrong.what,
        };
        let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let read = file::File::read(text).map_err(wrong)?;
        check::check(&read, &stem, cpus, check_command).map_err(wrong)
    }

    /// The ports of a container: each with its link.
    pub fn ports(&self, container: &str) -> impl Iterator<Item = (&LinkPlan, &EndPlan)> {
        let ends = self.links.iter().flat_map(|link| link.ends.iter().map(move |end| (link, end)));
        ends.filter(move |(_, end)| end.container == container)
    }

    /// Whether the host is at a link.
    pub fn has_host(&self) -> bool {
        self.ports(HOST).next().is_some()
    }
}

impl LinkPlan {
    /// An end's address with the length of its prefix, as in `10.0.0.1/24`.
    pub fn address(&self, end: &EndPlan) -> Option<String> {
        let (network, address) = (self.network?, end.address?);
        Some(format!("{address}/{}", network.prefix_len()))
    }
}

/// The words of a command line that calls `dray`; `None` where it calls something else, or leaves more to
/// the shell than variables.
pub(crate) fn dray_call(line: &str) -> Option<Vec<String>> {
    const MARKS: [&str; 7] = ["|", ";", "<", ">", "`", "$(", "&&"];
    let words = words(line);
    let is_call = words.first()? == "dray" && !MARKS.iter().any(|mark| line.contains(mark));
    is_call.then_some(words)
}

/// Splits a command line into words, as a shell does with quotes.
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

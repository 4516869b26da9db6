//! The page: tables of what was proven.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::str::FromStr;

use dray_lab::link::EndKind;
use dray_lab::peer::{SwitchKind, find_ns3};
use dray_lab::{LinkKind, Runtime};
use dray_measure::{Endpoint, Technique};

use super::papers::{Here, PAPERS};

/// A technique in containers of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) runtime: Runtime,
    pub(crate) technique: Technique,
}

/// Machine and containers in which something was proven: one test each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// This machine, the lab's own containers.
    Here,
    /// This machine, containers of engines.
    Engines,
    /// A virtual machine, any containers.
    Vm,
}

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::Here, Self::Engines, Self::Vm];

    /// File that lists what was proven there.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Here => "lab.txt",
            Self::Engines => "engines.txt",
            Self::Vm => "vm.txt",
        }
    }

    /// Name in tables.
    fn word(self) -> &'static str {
        match self {
            Self::Here | Self::Engines => "here",
            Self::Vm => "VM",
        }
    }
}

/// Switches that Debian does not package, and how their versions begin.
pub(crate) const UNPACKAGED: [(SwitchKind, &str); 2] =
    [(SwitchKind::Vpp, "VPP"), (SwitchKind::Snabb, "Snabb")];

/// Cases that work: lines of a runtime and a technique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proven(BTreeSet<String>);

impl Proven {
    pub(crate) fn add(&mut self, case: Case) {
        self.0.insert(case.to_string());
    }

    pub(crate) fn add_all(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the lines that are not in `other`.
    pub(crate) fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a String> {
        self.0.difference(&other.0)
    }

    /// Returns those of `cases` that were proven.
    pub(crate) fn of(&self, cases: &[Case]) -> Self {
        let lines: BTreeSet<_> = cases.iter().map(Case::to_string).collect();
        Self(self.0.intersection(&lines).cloned().collect())
    }

    fn holds(&self, case: Case) -> bool {
        self.0.contains(&case.to_string())
    }
}

impl fmt::Display for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl FromStr for Proven {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.lines().map(str::to_owned).collect()))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.runtime, self.technique)
    }
}

impl Case {
    /// Returns true if the combination exists: an engine's own networks join only its containers.
    pub(crate) fn can_be(&self) -> bool {
        self.technique.link.runtime().is_none_or(|own| own == self.runtime)
    }

    /// Returns true if no known obstacle prevents the case here.
    pub(crate) fn is_tried(&self) -> bool {
        self.refusal().is_none() && !self.lacks_program()
    }

    /// Returns true if the case needs an optional program that is not installed.
    pub(crate) fn lacks_program(&self) -> bool {
        let lacks_ns3 = self.technique.endpoint.is_ns3() && find_ns3().is_none();
        lacks_ns3 || self.unpackaged().is_some_and(|(switch, _)| switch.find().is_err())
    }

    fn unpackaged(&self) -> Option<(SwitchKind, &'static str)> {
        let is_it = |(switch, _): &(SwitchKind, _)| self.technique.link.switch() == Some(*switch);
        UNPACKAGED.into_iter().find(is_it)
    }

    /// Reason why the case is not proven. There has to be one.
    fn why_not(&self) -> Option<String> {
        self.refusal().or_else(|| {
            let (_, name) = self.unpackaged()?;
            Some(format!("needs {name}, of which Debian has no package ({HOW})"))
        })
    }

    /// Obstacle that exists on every machine.
    fn refusal(&self) -> Option<String> {
        let Self { runtime, technique } = *self;
        if technique.endpoint == Endpoint::SMC {
            return Some(
                "needs a kernel with CONFIG_SMC and CONFIG_DIBS_LO (CONFIG_SMC_LO before Linux 6.18), \
                 which Debian's have not"
                    .to_owned(),
            );
        }
        if technique.link.name == "podman/ipvlan-l2" {
            return Some("needs Podman 4.5 and netavark 1.5; Debian 12 has older ones".to_owned());
        }
        if technique.to_string() == "ipvlan/l2-private/afxdp-generic" {
            return Some(
                "containers are not kept apart: the kernel hands frames of AF_XDP sockets on through the \
                 parent"
                    .to_owned(),
            );
        }
        if technique.to_string() == "sriov/dpdk-afxdp" {
            return Some(
                "DPDK 22.11's AF_XDP driver sends no more than its first ring of frames by functions of \
                 virtio-net, those of QEMU's igb have no XDP, and no other card was at hand"
                    .to_owned(),
            );
        }
        if let Err(why) = technique.check() {
            return Some(why.to_string());
        }
        let why = technique.endpoint.check_runtime(runtime).err()?.to_string();
        // Without the name before it, which the table shows beside it.
        Some(why.rsplit(": ").next().unwrap_or_default().to_owned())
    }
}

/// Returns each link with one endpoint, and each endpoint on one link.
pub(crate) fn once_each() -> Vec<Technique> {
    let links = every_link().into_iter().map(usual);
    let endpoints = every_endpoint().filter_map(|endpoint| {
        let links =
            [LinkKind::VETH, LinkKind::UNIX, LinkKind::PATCH, LinkKind::VPP_MEMIF, LinkKind::SRIOV];
        Technique::by_link(&links, &[endpoint]).first().copied()
    });
    let mut all: Vec<Technique> = Vec::new();
    for technique in links.chain(endpoints) {
        if !all.contains(&technique) {
            all.push(technique);
        }
    }
    all
}

/// Returns every endpoint but netmap's, whose module no kernel of these tests has.
fn every_endpoint() -> impl Iterator<Item = Endpoint> {
    Endpoint::all().into_iter().filter(|endpoint| endpoint.facts().opens != EndKind::Netmap)
}

/// Returns every technique of [`every_endpoint`].
pub(crate) fn every_technique() -> impl Iterator<Item = Technique> {
    Technique::every().into_iter().filter(|technique| technique.link.end() != EndKind::Netmap)
}

/// Returns the links of [`every_technique`].
fn every_link() -> Vec<LinkKind> {
    LinkKind::every().into_iter().filter(|link| link.end() != EndKind::Netmap).collect()
}

/// Returns the endpoint that represents a link.
fn usual(link: LinkKind) -> Technique {
    let endpoints = [
        Endpoint::RAW_MMSG,
        Endpoint::VIRTIO,
        Endpoint::MEMIF,
        Endpoint::DGRAM_MMSG,
        Endpoint::TAP,
    ];
    Technique::by_link(&[link], &endpoints)[0]
}

/// How to get programs that Debian does not package.
const HOW: &str = "[how to get it](techniques.md#third-party-switches)";

/// Tables of what was proven, with the reasons for the rest collected as they occur.
struct Tables<'a> {
    proven: &'a BTreeMap<Place, Proven>,
    /// Versions of [`UNPACKAGED`] switches with which techniques were proven.
    versions: &'a [String],
    notes: Vec<String>,
    text: String,
}

/// Renders the page.
pub(crate) fn render(proven: &BTreeMap<Place, Proven>, versions: &[String]) -> String {
    let mut tables = Tables { proven, versions, notes: Vec::new(), text: HEAD.to_owned() };
    tables.runtimes();
    tables.endpoints();
    tables.papers();
    tables.end()
}

const HEAD: &str = "\
# What works where

Generated by `make coverage`; do not edit. *Here* is the reference machine (Debian 12, a kernel without loadable
modules), *VM* a [virtual machine](../CONTRIBUTING.md) on it with a newer kernel and an emulated network card. A cell
contains one of these words only if a test of this technique in containers of this runtime passed:

* At least 100 frames, or a byte stream, were sent, and each frame or byte was received once, and intact. A trial sends
  2000 frames a second, or bytes as fast as it can, for 80 ms, from one container to another without forwarders. A
  switch may drop the frames that it begins with, and a busy machine some others, so up to 20 trials are made until no
  frame of one is lost: a cell says that a technique works, not that it never loses anything.
* Links that isolate containers: no frame arrived, and every frame left the host or was dropped.
* DPDK's endpoints do not check frames and send as fast as they can: at least 100 frames were received, and the
  counters of both ends and of the link agree.

The tests are in `tests/coverage/main.rs`:

| cells | test |
|---|---|
| *here*, embedded runtime | `techniques_with_dpdk` |
| *here*, other runtimes | `techniques_with_engines` |
| *VM* | `techniques_with_vm` |

Links and endpoints of netmap are not in these tables: `tests/vm/netmap.rs` tests them in a virtual machine with the
netmap module, in the embedded runtime.

`make coverage` runs all cells. `make test-all` tests each link and each endpoint once, in the embedded runtime and,
where possible here, in Docker, and fails if a cell is no longer true.
";

impl Tables<'_> {
    /// Writes links by runtime, then endpoints by runtime.
    fn runtimes(&mut self) {
        let runtimes = Runtime::ALL.map(|runtime| runtime.to_string());
        self.title("Links in containers of each runtime");
        self.text.push_str("Each with one endpoint.\n\n");
        self.head("link", &[&["endpoint".to_owned()][..], &runtimes].concat());
        for technique in every_link().into_iter().map(usual) {
            let mut row = vec![technique.endpoint.to_string()];
            row.extend(Runtime::ALL.map(|runtime| self.cell(Case { runtime, technique })));
            self.row(technique.link.name, &row);
        }
        self.title("Endpoints in containers of each runtime");
        self.text.push_str("Each on one link.\n\n");
        self.head("endpoint", &[&["link".to_owned()][..], &runtimes].concat());
        for endpoint in every_endpoint() {
            let technique = *once_each()
                .iter()
                .find(|technique| technique.endpoint == endpoint)
                .expect("a technique for each endpoint");
            let mut row = vec![technique.link.to_string()];
            row.extend(Runtime::ALL.map(|runtime| self.cell(Case { runtime, technique })));
            self.row(endpoint.name, &row);
        }
    }

    /// Writes links by endpoint, in the lab's own containers.
    fn endpoints(&mut self) {
        self.title("Links with each of their endpoints");
        self.text.push_str(
            "In the embedded runtime. An empty cell is a combination that does not exist \
             ([why](links.md#which-endpoints-go-with-which-link)).\n",
        );
        let is_unix = |link: &LinkKind| link.end() == EndKind::UnixSocket;
        let sorts: [&dyn Fn(&LinkKind) -> bool; 3] = [
            &|link| !link.shares_memory() && !is_unix(link),
            &|link| link.shares_memory(),
            &is_unix,
        ];
        for sort in sorts {
            let links = every_link().into_iter().filter(|link| link.runtime().is_none());
            let links: Vec<_> = links.filter(|link| sort(link)).collect();
            let goes = |endpoint: &Endpoint| !Technique::by_link(&links, &[*endpoint]).is_empty();
            let endpoints: Vec<_> = every_endpoint().filter(goes).collect();
            self.text.push('\n');
            let names: Vec<_> = endpoints.iter().map(Endpoint::to_string).collect();
            self.head("link", &names);
            for &link in &links {
                let cell = |endpoint: &Endpoint| {
                    let technique = *Technique::by_link(&[link], &[*endpoint]).first()?;
                    Some(Case { runtime: Runtime::Embedded, technique })
                };
                let cases: Vec<_> = endpoints.iter().map(cell).collect();
                let cells: Vec<_> = cases
                    .into_iter()
                    .map(|case| case.map(|case| self.cell(case)).unwrap_or_default())
                    .collect();
                self.row(link.name, &cells);
            }
        }
    }

    /// Writes what the papers compare.
    fn papers(&mut self) {
        self.title("The papers' techniques");
        self.text.push_str("In the embedded runtime.\n\n");
        self.head("paper", &["what it measures", "technique here", ""].map(str::to_owned));
        for (paper, what, here) in PAPERS {
            let (here, cell) = match *here {
                Here::Technique(word) => {
                    let technique = Technique::every().into_iter().find(|t| t.to_string() == word);
                    let technique = technique.unwrap_or_else(|| panic!("{word} is no technique"));
                    let case = Case { runtime: Runtime::Embedded, technique };
                    (format!("`{word}`"), self.cell(case))
                }
                Here::Shown(by) => (String::new(), self.note(Place::Vm.word(), by.to_owned())),
            };
            self.row(paper, &[(*what).to_owned(), here, cell]);
        }
    }

    /// Returns where a case works, or the number of the reason why it does not.
    fn cell(&mut self, case: Case) -> String {
        if !case.can_be() {
            return String::new();
        }
        let place = self.proven.iter().find(|(_, proven)| proven.holds(case));
        match (place, case.why_not()) {
            (Some((place, _)), _) => match case.unpackaged() {
                Some((_, name)) => {
                    let mut versions = self.versions.iter();
                    let version = versions.find(|version| version.starts_with(name));
                    let version = version.unwrap_or_else(|| panic!("{case}: with which {name}?"));
                    let why = format!(
                        "with {version}, of which Debian has no package ({HOW}); tried again where it is \
                         installed"
                    );
                    self.note(place.word(), why)
                }
                None => place.word().to_owned(),
            },
            (None, Some(why)) => self.note("no", why),
            (None, None) => panic!("{case}: neither a test nor a reason for its absence"),
        }
    }

    /// Returns a word with the number of a note.
    fn note(&mut self, word: &str, why: String) -> String {
        let number = self.notes.iter().position(|note| *note == why).unwrap_or_else(|| {
            self.notes.push(why);
            self.notes.len() - 1
        });
        format!("{word} ({})", number + 1)
    }

    fn title(&mut self, title: &str) {
        write!(self.text, "\n## {title}\n\n").expect("a string takes everything");
    }

    fn head(&mut self, first: &str, names: &[String]) {
        let rule = "|---".repeat(names.len() + 1);
        writeln!(self.text, "| {first} | {} |\n{rule}|", names.join(" | ")).expect("memory");
    }

    fn row(&mut self, name: &str, cells: &[String]) {
        writeln!(self.text, "| `{name}` | {} |", cells.join(" | ")).expect("memory");
    }

    /// Writes the reasons, and returns the page.
    fn end(mut self) -> String {
        self.title("Why not, and with what");
        for (number, note) in (1..).zip(&self.notes) {
            writeln!(self.text, "{number}. {note}").expect("memory");
        }
        self.text
    }
}

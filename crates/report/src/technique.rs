//! The techniques of a report: a number for each, and its colour in every chart.

use dray_lab::Runtime;
use dray_measure::ResultRow;

use crate::compare::Key;
use crate::input::Run;

/// All techniques of a report, in the order in which they appear.
#[derive(Debug, Default)]
pub(crate) struct Techniques(Vec<Technique>);

/// A technique, and its colour.
#[derive(Clone, Debug)]
pub(crate) struct Technique {
    pub(crate) name: String,
    /// The first part of its link: all of one family have one colour.
    pub(crate) family: String,
    /// One of ten.
    pub(crate) colour: usize,
}

/// A run in which techniques are called after their circumstances as well: whose containers they were
/// measured in, beside what neighbour, with what MTU, unless it is the usual one, and how closely receivers
/// looked, where rows differ in nothing else.
pub(crate) fn named(run: &Run) -> Run {
    let mut run = run.clone();
    let inside = |technique: &str, runtime: &str| {
        // Some links are of one runtime's containers, and called after it.
        let is_usual = runtime == Runtime::Embedded.name() || technique.starts_with(runtime);
        if is_usual { String::new() } else { format!(" in {runtime}") }
    };
    let with = |mtu: u32| if mtu == 1500 { String::new() } else { format!(", MTU {mtu}") };
    let by_check = Key::checks_differ(&run.results.results);
    for row in &mut run.results.results {
        let mut text = inside(&row.technique, &row.runtime) + &with(row.mtu);
        if let (true, Some(measured)) = (by_check, row.measured()) {
            text += &format!(", check {}", measured.check);
        }
        if let Some(neighbour) = &row.neighbour {
            text += &format!(", {neighbour} neighbour");
        }
        row.technique += &text;
    }
    for row in &mut run.results.streams {
        row.technique += &(inside(&row.technique, &row.runtime) + &with(row.mtu));
    }
    run
}

/// Those that have a colour of their own in every report.
const FAMILIES: [&str; 10] =
    ["switch", "ovs-dpdk", "testpmd", "veth", "bridge", "direct", "xdp", "snabb", "vpp", "macvlan"];

impl Techniques {
    pub(crate) fn add(&mut self, name: &str, link: &str) {
        if self.0.iter().any(|known| known.name == name) {
            return;
        }
        let family = link.split('/').next().unwrap_or(link).to_owned();
        let mut mine = self.0.iter().filter(|known| known.family == family);
        let colour = FAMILIES.iter().position(|known| *known == family);
        let colour = colour.or_else(|| mine.next().map(|known| known.colour));
        let colour = colour.unwrap_or(self.0.len() % FAMILIES.len());
        self.0.push(Technique { name: name.to_owned(), family, colour });
    }

    /// The number of the one called `name`, which has been added.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.0.iter().position(|known| known.name == name).expect("all techniques are known")
    }

    pub(crate) fn get(&self, number: usize) -> &Technique {
        &self.0[number]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Technique> {
        self.0.iter()
    }
}

/// Whether programs need not be changed for it: they use the kernel's ordinary sockets.
pub(crate) fn is_unmodified(row: &ResultRow) -> bool {
    let kind = row.endpoint.split('-').next();
    matches!(kind, Some("udp" | "tcp"))
}

/// What a program must be for it, as far as we know the endpoint.
pub(crate) fn takes(endpoint: &str) -> Option<&'static str> {
    let programs = match endpoint {
        "udp" | "tcp" => "any program with sockets",
        "udp-mmsg" => "programs that use sendmmsg and recvmmsg",
        "raw" | "raw-mmsg" => "programs that use packet sockets",
        "virtio" | "virtio-packed" => "programs with a virtio-user driver, such as dray's library",
        "dpdk" | "dpdk-packed" | "dpdk-afxdp" => "DPDK programs",
        other if other.starts_with("afxdp") => "programs that use AF_XDP sockets",
        _ => return None,
    };
    Some(programs)
}

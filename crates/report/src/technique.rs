//! The techniques of a report: a number for each, and its colour in every chart.

use dray_lab::Runtime;
use dray_measure::ResultRow;

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

/// A run in which a technique's name says also what it was measured in, where that is not the usual: two
/// that differ in that are two techniques to whoever has to choose.
pub(crate) fn labelled(run: &Run) -> Run {
    let usual = Runtime::Embedded.to_string();
    let label = |technique: &mut String, runtime: &str, mtu: u32| {
        if runtime != usual {
            technique.push_str(&format!(" in {runtime}"));
        }
        if mtu != 1500 {
            technique.push_str(&format!(", MTU {mtu}"));
        }
    };
    let mut run = run.clone();
    for row in &mut run.results.results {
        label(&mut row.technique, &row.runtime, row.mtu);
    }
    for row in &mut run.results.streams {
        label(&mut row.technique, &row.runtime, row.mtu);
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

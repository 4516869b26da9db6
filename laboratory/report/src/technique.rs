//! The techniques of a report: a number for each, and its colour in every chart.

use dray_results::{EMBEDDED, ResultRow};
use serde::Serialize;

use crate::compare::Key;
use crate::input::Run;

/// All techniques of a report, in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Techniques(Vec<Technique>);

/// A technique and its colour.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Technique {
    pub(crate) number: usize,
    pub(crate) name: String,
    /// First part of the link's name; a family has one colour.
    pub(crate) family: String,
    /// Number of the colour, one of ten.
    pub(crate) colour: usize,
}

/// Returns a copy of the run in which names of techniques include their circumstances: the runtime
/// the MTU and the number of stations unless they are the defaults, the neighbour if there is one,
/// and the receivers' check if rows differ in nothing else.
pub(crate) fn named(run: &Run) -> Run {
    let mut run = run.clone();
    let inside = |technique: &str, runtime: &str| {
        // Some links exist only in one runtime and have its name.
        let is_usual = runtime == EMBEDDED || technique.starts_with(runtime);
        if is_usual { String::new() } else { format!(" in {runtime}") }
    };
    let with = |mtu: u32| if mtu == 1500 { String::new() } else { format!(", MTU {mtu}") };
    let by_check = Key::checks_differ(&run.results.results);
    for row in &mut run.results.results {
        let mut text = inside(&row.technique, &row.runtime) + &with(row.mtu);
        if let (true, Some(measured)) = (by_check, row.measured()) {
            text += &format!(", check {}", measured.check);
        }
        if row.stations > 1 {
            text += &format!(", {} stations", row.stations);
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

/// Families that have a fixed colour in every report.
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
        let number = self.0.len();
        self.0.push(Technique { number, name: name.to_owned(), family, colour });
    }

    /// Returns the technique `name`, which must have been added.
    pub(crate) fn get(&self, name: &str) -> &Technique {
        self.0.iter().find(|known| known.name == name).expect("all techniques are known")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Technique> {
        self.0.iter()
    }
}

/// Returns true if programs work unmodified, because they use the kernel's ordinary sockets.
pub(crate) fn is_unmodified(row: &ResultRow) -> bool {
    let kind = row.endpoint.split('-').next();
    matches!(kind, Some("udp" | "tcp"))
}

/// Returns the programs that can use an endpoint; `None` for an unknown endpoint.
pub(crate) fn takes(endpoint: &str) -> Option<&'static str> {
    let programs = match endpoint {
        "udp" | "tcp" => "any program with sockets",
        "udp-mmsg" => "programs that use sendmmsg and recvmmsg",
        "raw" | "raw-mmsg" => "programs that use packet sockets",
        "virtio" | "virtio-packed" => "programs with a virtio-user driver, such as dray's library",
        "dpdk" | "dpdk-packed" | "dpdk-afxdp" => "DPDK programs",
        "netmap" | "pkt-gen" => "programs that use netmap",
        other if other.starts_with("ns3-") => "simulations of ns-3",
        other if other.starts_with("afxdp") => "programs that use AF_XDP sockets",
        _ => return None,
    };
    Some(programs)
}

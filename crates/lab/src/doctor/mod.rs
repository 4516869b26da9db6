//! What this host offers for measuring and for the data plane; for each lack, what it costs and how
//! to get it.
//!
//! Nothing is changed: links are made in a scratch namespace that goes away, no kernel module is
//! loaded, and NICs are only read.

mod bpf;
mod cpu;
mod links;
mod memory;
pub(crate) mod modules;
mod nics;
pub(crate) mod programs;
mod render;
mod sys;
mod system;

use serde::Serialize;

use crate::HostFacts;

pub use render::render;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it belongs to.
    pub group: &'static str,
    /// What was looked at.
    pub item: String,
    /// How it is.
    pub state: State,
    /// What was found, in a few words.
    pub detail: String,
    /// What a lack costs, and how to get what lacks; `None` where it costs nothing or cannot be
    /// helped.
    pub advice: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is there.
    Ok,
    /// It is not there.
    Missing,
    /// It is there, but figures will suffer.
    Warning,
    /// It cannot be told.
    Unknown,
}

/// Looks at everything. Takes well under a second, unless a program takes long to say its version.
pub fn examine() -> Vec<Finding> {
    let host = HostFacts::gather();
    [
        system::examine(&host),
        cpu::examine(&host),
        memory::examine(&host),
        bpf::examine(),
        links::examine(&host),
        nics::examine(&host),
        programs::examine(&host),
    ]
    .concat()
}

impl Finding {
    fn new(
        group: &'static str,
        item: impl Into<String>,
        state: State,
        detail: impl Into<String>,
    ) -> Self {
        Self { group, item: item.into(), state, detail: detail.into(), advice: None }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// What could not be tried for want of privileges.
fn needs_root(group: &'static str, item: &str) -> Finding {
    Finding::new(group, item, State::Unknown, "only root may try it")
        .advise("dray does without it until it is root; run this with sudo")
}

/// Writes a size as its user would: `48 KiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (1..UNITS.len()).rev().find(|unit| bytes >= 1 << (10 * unit)).unwrap_or(0);
    let one = 1_u64 << (10 * unit);
    if bytes.is_multiple_of(one) {
        return format!("{} {}", bytes / one, UNITS[unit]);
    }
    format!("{:.1} {}", bytes as f64 / one as f64, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::read;
    use std::fs;

    #[test]
    fn every_group_is_examined_and_nothing_is_left_behind() {
        let host = || {
            let interfaces = fs::read_dir("/sys/class/net").unwrap().count();
            let named = fs::read_dir("/run/netns").map_or(0, Iterator::count);
            (interfaces, named, fs::read_link("/proc/thread-self/ns/net").unwrap())
        };
        let (before, modules) = (host(), read("/proc/modules"));
        let findings = examine();
        assert_eq!(host(), before);
        let names = |text: Option<String>| -> Vec<String> {
            let text = text.unwrap_or_default();
            text.lines().map(|l| l.split(' ').next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(names(read("/proc/modules")), names(modules));

        let mut groups: Vec<_> = findings.iter().map(|finding| finding.group).collect();
        groups.dedup();
        assert_eq!(groups, ["system", "cpu", "memory", "bpf", "links", "nics", "programs"]);
        for finding in &findings {
            let advice = finding.advice.as_deref().unwrap_or_default();
            assert!(!finding.item.is_empty() && !finding.detail.is_empty(), "{finding:?}");
            assert!(!advice.contains('\n') && !finding.detail.contains('\n'), "{finding:?}");
            assert!(finding.state != State::Ok || advice.is_empty(), "{finding:?}");
        }
        let text = render(&findings);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(serde_json::to_string(&findings).unwrap().contains("\"state\":\"ok\""));
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(48 << 10), "48 KiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(2 << 40), "2 TiB");
    }
}

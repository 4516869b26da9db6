//! Examines what this host offers for measurements and for the data plane. Each finding about
//! something missing says what that costs and how to fix it.
//!
//! Nothing is changed: links are created in a temporary scratch namespace, no kernel module is
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

pub use render::render;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Group of the check.
    pub group: &'static str,
    /// Checked item.
    pub item: String,
    /// State of the item.
    pub state: State,
    /// Short description of what was found.
    pub detail: String,
    /// Cost of a problem and how to fix it; `None` if it costs nothing or cannot be fixed.
    pub advice: Option<String>,
}

/// State of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Present.
    Ok,
    /// Not present.
    Missing,
    /// Present, but measurements will suffer.
    Warning,
    /// Cannot be determined.
    Unknown,
}

/// Runs all checks. Takes well under a second, unless a program is slow to print its version.
pub fn examine() -> Vec<Finding> {
    let host = crate::host::facts();
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

/// Finding for a check that needs privileges.
fn needs_root(group: &'static str, item: &str) -> Finding {
    Finding::new(group, item, State::Unknown, "only root can test it")
        .advise("dray does not use it without root; run this with sudo")
}

/// Formats a size with a unit: `48 KiB`.
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
    fn examine_covers_every_group_and_leaves_nothing() {
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

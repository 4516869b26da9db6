//! Examines what this host offers for measurements and for the data plane. Each finding about
//! something missing says what that costs and how to fix it.
//!
//! Nothing is changed: links are created in a temporary scratch namespace, no kernel module is
//! loaded, and NICs are only read.

mod bpf;
mod cpu;
mod finding;
pub(crate) mod links;
mod memory;
mod nics;
mod programs;
mod render;
mod sys;
mod system;

pub use finding::{Finding, State};
pub use render::render;

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
        let has = |item: &str, part: &str| {
            findings.iter().any(|it| it.item == item && it.detail.contains(part))
        };
        assert_eq!(has("AF_XDP", "socket opened"), has("AF_XDP checksums", "in generic mode"));
        let text = render(&findings);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(serde_json::to_string(&findings).unwrap().contains("\"state\":\"ok\""));
    }
}

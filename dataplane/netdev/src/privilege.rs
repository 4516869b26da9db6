//! Capabilities that interfaces and ports need, and a hint for a program that lacks them.

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

/// A capability and its name without `CAP_`.
pub type Capability = (&'static str, CapabilitySet);

/// BPF programs and maps; CAP_SYS_ADMIN includes it.
pub const BPF: Capability = ("BPF", CapabilitySet::BPF);
/// Device files.
pub const MKNOD: Capability = ("MKNOD", CapabilitySet::MKNOD);
/// Other namespaces.
pub const SYS_ADMIN: Capability = ("SYS_ADMIN", CapabilitySet::SYS_ADMIN);
/// Settings of interfaces, and BPF programs that see their frames.
pub const NET_ADMIN: Capability = ("NET_ADMIN", CapabilitySet::NET_ADMIN);
/// Ports of UDP below 1024.
pub const NET_BIND: Capability = ("NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE);
/// Packet sockets and AF_XDP sockets.
pub const NET_RAW: Capability = ("NET_RAW", CapabilitySet::NET_RAW);

/// Returns what a program that was denied something that needs `needed` can do about it.
pub fn hint(needed: &[Capability]) -> String {
    let effective = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
    hint_for(needed, effective, geteuid().is_root())
}

fn hint_for(needed: &[Capability], effective: CapabilitySet, is_root: bool) -> String {
    let list = |capabilities: &[&Capability]| {
        let names = capabilities.iter().map(|(name, _)| format!("CAP_{name}"));
        names.collect::<Vec<_>>().join(" and ")
    };
    let held = match effective.contains(CapabilitySet::SYS_ADMIN) {
        true => effective | CapabilitySet::BPF,
        false => effective,
    };
    let missing: Vec<&Capability> =
        needed.iter().filter(|(_, flag)| !held.contains(*flag)).collect();
    if missing.is_empty() {
        let all = list(&needed.iter().collect::<Vec<_>>());
        return format!(
            "; this process has {all}, so a user namespace, a seccomp filter or the container's list \
             of devices forbids this"
        );
    }
    let lacks = list(&missing);
    if is_root {
        let options = missing.iter().map(|(name, _)| format!("--cap-add {name}"));
        let options = options.collect::<Vec<_>>().join(" ");
        format!("; this needs {lacks}, which root lacks here; for a container, give {options}")
    } else {
        format!("; this needs {lacks}, so run it as root")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_only_missing_capabilities() {
        let needed = [BPF, NET_ADMIN];
        let raw = CapabilitySet::NET_RAW;
        assert_eq!(
            hint_for(&needed, raw, false),
            "; this needs CAP_BPF and CAP_NET_ADMIN, so run it as root"
        );
        assert_eq!(
            hint_for(&needed, raw | CapabilitySet::BPF, true),
            "; this needs CAP_NET_ADMIN, which root lacks here; for a container, give --cap-add \
             NET_ADMIN"
        );
        let admin = CapabilitySet::SYS_ADMIN | raw;
        let hint = hint_for(&needed, admin, true);
        assert!(hint.starts_with("; this needs CAP_NET_ADMIN, which root"), "{hint}");
        let all = hint_for(&needed, CapabilitySet::all(), true);
        assert!(all.starts_with("; this process has CAP_BPF and CAP_NET_ADMIN, so"), "{all}");
    }
}

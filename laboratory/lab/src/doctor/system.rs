//! The kernel, the machine, and the privileges of this process.

use std::io;

use dray_results::HostFacts;

use super::finding::{Finding, State};
use crate::capability;
use crate::cgroup;
use crate::host::read;

const GROUP: &str = "system";

/// First kernel with everything that a lab container needs: waiting on a pidfd.
const KERNEL_MIN: (u32, u32) = (5, 4);

pub(super) fn examine(host: &HostFacts) -> Vec<Finding> {
    vec![
        kernel(host),
        distribution(host),
        machine(host),
        mitigations(host),
        privileges(&read("/proc/self/status").unwrap_or_default()),
        sandbox(dray_sandbox::landlock_version()),
        control_groups(cgroup::cpuset_version()),
    ]
}

fn kernel(host: &HostFacts) -> Finding {
    let detail = format!("Linux {} on {}", host.kernel, host.architecture);
    let finding = |state| Finding::new(GROUP, "kernel", state, &*detail);
    match version(&host.kernel) {
        None => finding(State::Unknown),
        Some(version) if version < KERNEL_MIN => {
            let (major, minor) = KERNEL_MIN;
            finding(State::Warning).advise(format!(
                "containers cannot be created; boot Linux {major}.{minor} or later"
            ))
        }
        Some(_) => finding(State::Ok),
    }
}

/// Reads the first two numbers of a release such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn distribution(host: &HostFacts) -> Finding {
    match &host.os {
        Some(name) => Finding::new(GROUP, "distribution", State::Ok, name),
        None => Finding::new(GROUP, "distribution", State::Unknown, "unknown"),
    }
}

fn machine(host: &HostFacts) -> Finding {
    let Some(name) = &host.virtualization else {
        return Finding::new(GROUP, "machine", State::Ok, "physical: no hypervisor detected");
    };
    let detail = if name == "yes" {
        "virtual machine".to_owned()
    } else {
        format!("virtual machine ({name})")
    };
    Finding::new(GROUP, "machine", State::Warning, detail).advise(
        "other guests use CPU time, so results vary more; repeat important measurements on a \
         physical machine",
    )
}

fn mitigations(host: &HostFacts) -> Finding {
    let detail = host.mitigations.as_deref().unwrap_or("kernel default");
    Finding::new(GROUP, "mitigations", State::Ok, detail)
}

fn privileges(status: &str) -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "privileges", state, detail);
    match capability::lacking(status) {
        None => finding(State::Unknown, "no valid CapEff line in /proc/self/status"),
        Some(lacking) if lacking.is_empty() => {
            finding(State::Ok, "sufficient for containers and links")
        }
        Some(lacking) => finding(State::Missing, &format!("no {}", lacking.join(", "))).advise(
            "containers and links cannot be created; run this with sudo, or in a container that \
             was started with --privileged",
        ),
    }
}

fn sandbox(landlock: io::Result<u32>) -> Finding {
    match landlock {
        Ok(version) => {
            Finding::new(GROUP, "sandbox", State::Ok, format!("Landlock, version {version}"))
        }
        Err(error) => Finding::new(GROUP, "sandbox", State::Missing, format!("Landlock: {error}"))
            .advise(
                "`dray switch` and `dray upf` start only with --sandbox off; boot Linux 5.13 or \
                 later with landlock among its security modules (lsm=)",
            ),
    }
}

fn control_groups(cpuset: Option<u8>) -> Finding {
    match cpuset {
        Some(version) => {
            let detail = format!("version {version}, with cpusets");
            Finding::new(GROUP, "control groups", State::Ok, detail)
        }
        None => Finding::new(GROUP, "control groups", State::Missing, "no cpusets").advise(
            "containers are pinned to CPUs only by their affinity, which they can change; mount -t \
             cgroup2 none /sys/fs/cgroup",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_versions() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("5.14-rc1"), Some((5, 14)));
        assert_eq!(version("7.0+"), Some((7, 0)));
        for wrong in ["", "6", "six.one", "99999999999.1"] {
            assert_eq!(version(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn missing_landlock_is_reported() {
        assert_eq!(sandbox(Ok(7)).state, State::Ok);
        let missing = sandbox(Err(io::Error::from_raw_os_error(libc::ENOSYS)));
        assert_eq!(missing.state, State::Missing);
        assert!(missing.advice.is_some_and(|advice| advice.contains("--sandbox off")));
    }

    #[test]
    fn missing_capabilities_are_named() {
        let all = privileges("Name:\tdray\nCapEff:\t000001ffffffffff\n");
        assert_eq!(all.state, State::Ok);
        let some = privileges("CapEff:\t0000000000003000\n");
        assert_eq!(some.state, State::Missing);
        assert_eq!(some.detail, "no CAP_SYS_ADMIN");
        for unreadable in ["", "CapEff:\tnone\n"] {
            assert_eq!(privileges(unreadable).state, State::Unknown, "{unreadable}");
        }
    }
}

//! Capabilities that containers and links need.

use crate::LabError;
use crate::host::read;

/// Numbers in `linux/capability.h`, and names.
const NEEDED: [(u32, &str); 3] =
    [(21, "CAP_SYS_ADMIN"), (12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW")];

/// Returns an error if this process lacks a capability that every lab needs. Root has all of them,
/// except in many containers.
pub fn check() -> Result<(), LabError> {
    let status = read("/proc/self/status").unwrap_or_default();
    // If /proc cannot be read, the system calls report what is missing.
    let lacking = lacking(&status).unwrap_or_default();
    match lacking.is_empty() {
        true => Ok(()),
        false if !rustix::process::geteuid().is_root() => Err(LabError::NotPermitted),
        false => Err(LabError::LacksCapabilities { names: lacking.join(", ") }),
    }
}

/// Returns the needed capabilities that the process lacks whose `/proc/PID/status` this is; `None`
/// without a valid `CapEff` line.
pub(crate) fn lacking(status: &str) -> Option<Vec<&'static str>> {
    let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(value.trim(), 16).ok()?;
    let lacks = |(bit, _): &&(u32, &str)| held & 1 << bit == 0;
    Some(NEEDED.iter().filter(lacks).map(|(_, name)| *name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_capabilities_are_named() {
        let of = |line: &str| lacking(&format!("Name:\tdray\nCapEff:\t{line}\n"));
        assert_eq!(of("000001ffffffffff"), Some(vec![]));
        // Root in a Docker container.
        let expected = vec!["CAP_SYS_ADMIN", "CAP_NET_ADMIN"];
        assert_eq!(of("00000000a80425fb"), Some(expected));
        assert_eq!(of("zero"), None);
        assert_eq!(lacking(""), None);
    }
}

//! Device nodes of TAP and macvtap interfaces, which no engine gives its containers by default.

use std::fmt;
use std::fs;
use std::io;

use netlink_packet_route::link::InfoKind;

use crate::NetworkNamespace;
use crate::netlink::Netlink;

/// Device node of all TAP interfaces.
pub(super) const TUN: &str = "/dev/net/tun";

/// Character devices, by their device numbers (Documentation/admin-guide/devices.txt of the
/// kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Devices {
    pub(super) major: u32,
    /// Minor number; `None` = all minors of the driver.
    pub(super) minor: Option<u32>,
}

/// Device numbers of [`TUN`].
pub(super) const OF_TAP: Devices = Devices { major: 10, minor: Some(200) };

/// Returns [`TUN`] and the devices of macvtap interfaces. Each macvtap interface has its own
/// device, which has no number before the interface exists.
pub(super) fn of_interfaces() -> io::Result<Vec<Devices>> {
    // Without a parent no interface is created, but the kernel loads the driver, which then has a
    // major number.
    let netlink = Netlink::open(&NetworkNamespace::scratch()?)?;
    let _ = netlink.create_named("none", InfoKind::MacVtap, None, None);
    let of_macvtap = major(&fs::read_to_string("/proc/devices")?, "macvtap");
    let of_macvtap = of_macvtap.map(|major| Devices { major, minor: None });
    Ok([OF_TAP].into_iter().chain(of_macvtap).collect())
}

/// Finds a driver's major number among lines such as `246 macvtap`.
fn major(devices: &str, driver: &str) -> Option<u32> {
    let line = devices.lines().find(|line| line.split_whitespace().nth(1) == Some(driver))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Formats a rule of the device control group that allows mknod, read and write.
impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minor = self.minor.map_or("*".to_owned(), |minor| minor.to_string());
        write!(f, "c {}:{minor} rwm", self.major)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_is_found_by_full_name() {
        let devices =
            "Character devices:\n 10 misc\n245 ipvtap\n246 macvtap\n\nBlock devices:\n  7 loop\n";
        let found = major(devices, "macvtap").unwrap();
        assert_eq!(Devices { major: found, minor: None }.to_string(), "c 246:* rwm");
        assert_eq!(major(devices, "vtap"), None);
        assert_eq!(OF_TAP.to_string(), "c 10:200 rwm");
    }
}

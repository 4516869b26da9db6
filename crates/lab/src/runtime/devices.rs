//! The devices of TAP and macvtap interfaces, which no engine gives its containers unasked.

use std::fmt;
use std::fs;
use std::io;

use netlink_packet_route::link::InfoKind;

use crate::NetworkNamespace;
use crate::netlink::Netlink;

/// The device of all TAP interfaces.
pub(super) const TUN: &str = "/dev/net/tun";

/// Character devices by their numbers (Documentation/admin-guide/devices.txt of the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Devices {
    pub(super) major: u32,
    /// All of the driver's where it says nothing.
    pub(super) minor: Option<u32>,
}

/// Its numbers.
pub(super) const OF_TAP: Devices = Devices { major: 10, minor: Some(200) };

/// [`TUN`], and those of macvtap interfaces, each of which has its own; they have no numbers yet.
pub(super) fn of_interfaces() -> io::Result<Vec<Devices>> {
    // Without a parent it makes no interface, but the kernel loads the driver, which has numbers then.
    let _ =
        Netlink::open(&NetworkNamespace::scratch()?)?.create_plain("none", InfoKind::MacVtap, None);
    let of_macvtap = major(&fs::read_to_string("/proc/devices")?, "macvtap");
    let of_macvtap = of_macvtap.map(|major| Devices { major, minor: None });
    Ok([OF_TAP].into_iter().chain(of_macvtap).collect())
}

/// Finds a driver's number among lines such as `246 macvtap`.
fn major(devices: &str, driver: &str) -> Option<u32> {
    let line = devices.lines().find(|line| line.split_whitespace().nth(1) == Some(driver))?;
    line.split_whitespace().next()?.parse().ok()
}

/// As device control groups say that they may be made, read and written.
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
    fn a_driver_is_found_by_its_whole_name() {
        let devices =
            "Character devices:\n 10 misc\n245 ipvtap\n246 macvtap\n\nBlock devices:\n  7 loop\n";
        let found = major(devices, "macvtap").unwrap();
        assert_eq!(Devices { major: found, minor: None }.to_string(), "c 246:* rwm");
        assert_eq!(major(devices, "vtap"), None);
        assert_eq!(OF_TAP.to_string(), "c 10:200 rwm");
    }
}

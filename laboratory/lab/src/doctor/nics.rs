//! Physical NICs, and the requirements for assigning them to programs. NICs are only read.

use std::fs;
use std::path::{Path, PathBuf};

use dray_netdev::{Netdev, XdpFeatures};

use dray_results::HostFacts;

use super::finding::{Finding, State};
use crate::host::{list, pci_function, read};
use crate::modules::{Module, Modules};

const GROUP: &str = "nics";

/// Drivers that pass a whole NIC to a user-space program.
const USER_SPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

pub(super) fn examine(host: &HostFacts) -> Vec<Finding> {
    let netdev = Netdev::open().ok().flatten();
    let features = netdev.and_then(|netdev| netdev.xdp_features().ok());
    let mut findings = Vec::new();
    for name in list("/sys/class/net") {
        let interface = Path::new("/sys/class/net").join(&name);
        // Virtual interfaces have no device.
        if let Ok(device) = fs::canonicalize(interface.join("device")) {
            // A virtio device has a driver of its own below its PCI function, and no NUMA node.
            let function = pci_function(device.clone());
            let detail = describe(&interface, &device, &function);
            findings.push(Finding::new(GROUP, &*name, State::Ok, detail));
            findings.push(sr_iov(&name, &function));
            let index = read(interface.join("ifindex")).and_then(|text| text.parse().ok());
            findings.push(xdp(&name, index, features.as_deref()));
        }
    }
    findings.extend(handed_over());
    if findings.is_empty() {
        let none = Finding::new(GROUP, "NICs", State::Missing, "none in this network namespace");
        findings.push(none.advise(
            "only links inside this host can be measured; to measure macvlan, SR-IOV or DPDK on a \
             wire, run this in a namespace with a NIC",
        ));
    }
    findings.extend([iommu(), vfio(&Modules::of_kernel(&host.kernel))]);
    findings
}

/// Returns the name of the driver that a device is bound to.
fn driver(device: &Path) -> Option<String> {
    let driver = fs::read_link(device.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

fn describe(interface: &Path, device: &Path, function: &Path) -> String {
    let mut detail = format!("driver {}", driver(device).as_deref().unwrap_or("unknown"));
    // The kernel reports -1 or an error if there is no carrier or the device has no speed.
    let speed = read(interface.join("speed")).and_then(|text| text.parse::<u32>().ok());
    if let Some(megabits) = speed.filter(|&megabits| megabits != u32::MAX) {
        detail += &format!(", {megabits} Mbit/s");
    }
    let node = read(function.join("numa_node")).and_then(|text| text.parse::<u32>().ok());
    if let Some(node) = node {
        detail += &format!(", NUMA node {node}");
    }
    detail
}

fn sr_iov(name: &str, function: &Path) -> Finding {
    let count = |file: &str| -> Option<u32> { read(function.join(file))?.parse().ok() };
    let is_function = function.join("physfn").exists();
    sr_iov_finding(name, is_function, count("sriov_totalvfs"), count("sriov_numvfs").unwrap_or(0))
}

fn sr_iov_finding(name: &str, is_function: bool, possible: Option<u32>, made: u32) -> Finding {
    let finding =
        |state, detail: String| Finding::new(GROUP, format!("{name} SR-IOV"), state, detail);
    let cost = "containers cannot be given virtual functions of this NIC";
    match possible {
        _ if is_function => finding(State::Ok, "is itself a virtual function".to_owned()),
        Some(possible @ 1..) => {
            finding(State::Ok, format!("{made} of {possible} virtual functions created"))
        }
        Some(0) => finding(State::Missing, "disabled in the card's firmware".to_owned())
            .advise(format!("{cost}; enable SR-IOV with the vendor's tool or in the BIOS")),
        None => finding(State::Missing, "not supported by this device".to_owned()).advise(format!(
            "{cost}; use a NIC with SR-IOV, such as Intel's igb, ixgbe, i40e, ice"
        )),
    }
}

fn xdp(name: &str, index: Option<u32>, features: Option<&[(u32, XdpFeatures)]>) -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, format!("{name} XDP"), state, detail);
    let Some(features) = features else {
        return finding(State::Unknown, "not reported by the kernel").advise(
            "only a measurement shows whether AF_XDP is fast on this NIC; boot Linux 6.3 or later",
        );
    };
    let ours = features.iter().find(|(of, _)| Some(*of) == index).map(|(_, features)| *features);
    match ours {
        Some(features) if features.has_zero_copy() => {
            finding(State::Ok, "native, AF_XDP with zero copy")
        }
        Some(features) if features.is_native() => finding(State::Ok, "native, AF_XDP in copy mode"),
        Some(_) => finding(State::Missing, "not supported by the driver").advise(
            "XDP and AF_XDP run in the slower generic mode; use a NIC whose driver supports XDP, \
             such as i40e, ice, ixgbe, mlx5_core",
        ),
        None => finding(State::Unknown, "not reported by the kernel"),
    }
}

/// Finds NICs without an interface: with a user-space driver or none.
fn handed_over() -> Vec<Finding> {
    const DEVICES: &str = "/sys/bus/pci/devices";
    let mut findings = Vec::new();
    for address in list(DEVICES) {
        let device: PathBuf = Path::new(DEVICES).join(&address);
        let is_ethernet =
            read(device.join("class")).is_some_and(|class| class.starts_with("0x0200"));
        if !is_ethernet {
            continue;
        }
        match driver(&device) {
            Some(driver) if USER_SPACE_DRIVERS.contains(&driver.as_str()) => {
                let detail = format!("driver {driver}, for user-space programs");
                findings.push(Finding::new(GROUP, address, State::Ok, detail));
            }
            Some(_) => {}
            None => findings.push(
                Finding::new(GROUP, address, State::Missing, "not bound to a driver").advise(
                    "this NIC cannot be measured; load its driver, or bind vfio-pci for DPDK",
                ),
            ),
        }
    }
    findings
}

fn iommu() -> Finding {
    let groups = list("/sys/kernel/iommu_groups").len();
    if groups > 0 {
        return Finding::new(GROUP, "IOMMU", State::Ok, format!("{groups} groups"));
    }
    Finding::new(GROUP, "IOMMU", State::Missing, "disabled or not present").advise(
        "a NIC with a user-space driver can write to all memory; enable VT-d or AMD-Vi in the BIOS \
         and boot with intel_iommu=on (Intel) iommu=pt",
    )
}

fn vfio(modules: &Modules) -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "VFIO", state, detail);
    if Path::new("/sys/bus/pci/drivers/vfio-pci").exists() {
        return finding(State::Ok, "vfio-pci is available");
    }
    let detail = match modules.state("vfio_pci") {
        Module::Loadable => "kernel module not loaded",
        _ => "not supported by this kernel",
    };
    let remedy = modules.remedy("vfio_pci", "CONFIG_VFIO_PCI");
    let cost = "DPDK and virtual machines cannot use a NIC or virtual function directly";
    finding(State::Missing, detail).advise(format!("{cost}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_functions() {
        let state = |function, possible| sr_iov_finding("eth0", function, possible, 2).state;
        assert_eq!(state(true, None), State::Ok);
        assert_eq!(state(false, Some(0)), State::Missing);
        assert_eq!(state(false, None), State::Missing);
        let finding = sr_iov_finding("eth0", false, Some(7), 2);
        assert_eq!(finding.item, "eth0 SR-IOV");
        assert_eq!(finding.detail, "2 of 7 virtual functions created");
    }

    #[test]
    fn xdp_finding_follows_driver_features() {
        let all = [(2, XdpFeatures(0b1111)), (3, XdpFeatures(0b11)), (4, XdpFeatures(0))];
        let detail = |index| xdp("eth0", index, Some(&all)).detail;
        assert_eq!(detail(Some(2)), "native, AF_XDP with zero copy");
        assert_eq!(detail(Some(3)), "native, AF_XDP in copy mode");
        assert_eq!(detail(Some(4)), "not supported by the driver");
        assert_eq!(xdp("eth0", Some(5), Some(&all)).state, State::Unknown);
        assert_eq!(xdp("eth0", None, Some(&all)).state, State::Unknown);
        assert_eq!(xdp("eth0", Some(2), None).state, State::Unknown);
    }
}

//! ethtool's ioctl (linux/ethtool.h).

use std::fs;
use std::io;
use std::ptr;

use crate::Interface;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// `ETH_FLAG_RXVLAN`
const FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo`
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    versions: [[u8; 32]; 2],
    bus: [u8; 32],
    rest: [u32; 16],
}
const _: () = assert!(size_of::<DriverInfo>() == 196);

impl Interface {
    /// Returns the name of the interface's driver, if it reports one.
    pub fn driver(&self) -> Option<String> {
        text(&self.driver_info()?.driver)
    }

    /// Returns the NUMA node of the interface's card; `None` if it is not a card, or if the machine
    /// does not tell. This works in any network namespace, for which `/sys/class/net` may be
    /// another's.
    pub fn numa_node(&self) -> Option<u32> {
        let address = text(&self.driver_info()?.bus).filter(|address| !address.contains('/'))?;
        let node = fs::read_to_string(format!("/sys/bus/pci/devices/{address}/numa_node"));
        // -1 if it is not known.
        node.ok()?.trim().parse().ok()
    }

    fn driver_info(&self) -> Option<DriverInfo> {
        let mut info = DriverInfo {
            command: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            versions: [[0; 32]; 2],
            bus: [0; 32],
            rest: [0; 16],
        };
        self.ethtool(&mut info).ok()?;
        Some(info)
    }

    /// Returns the number of queues of the interface, if its driver reports it.
    pub fn queues(&self) -> Option<u32> {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        self.ethtool(&mut channels).ok()?;
        Some(channels.combined + channels.rx.max(channels.tx))
    }

    /// Makes the kernel compute checksums of transmitted frames, instead of leaving them to
    /// hardware.
    pub fn compute_checksums(&self) -> io::Result<()> {
        self.ethtool(&mut Value { command: ETHTOOL_STXCSUM, data: 0 })
    }

    /// Returns true if the driver strips VLAN tags from received frames, and reports the tag
    /// separately.
    pub fn takes_vlan_tags_off(&self) -> io::Result<bool> {
        Ok(self.flags()? & FLAG_RXVLAN != 0)
    }

    /// Sets whether the driver strips VLAN tags from received frames. Fails if the driver cannot
    /// change this.
    pub fn take_vlan_tags_off(&self, on: bool) -> io::Result<()> {
        let flags = self.flags()? & !FLAG_RXVLAN;
        let data = if on { flags | FLAG_RXVLAN } else { flags };
        self.ethtool(&mut Value { command: ETHTOOL_SFLAGS, data })
    }

    fn flags(&self) -> io::Result<u32> {
        let mut value = Value { command: ETHTOOL_GFLAGS, data: 0 };
        self.ethtool(&mut value)?;
        Ok(value.data)
    }

    /// Calls `SIOCETHTOOL` with one of the structs above.
    fn ethtool<T>(&self, argument: &mut T) -> io::Result<()> {
        const SIOCETHTOOL: libc::Ioctl = 0x8946;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = ptr::from_mut(argument).cast();
        // SAFETY: the kernel reads the name, and reads and writes the struct of the command in it.
        unsafe { self.ioctl(SIOCETHTOOL, &mut request) }
    }
}

/// Returns the text before the first zero of a field of the kernel's.
fn text(field: &[u8]) -> Option<String> {
    let text = field.split(|byte| *byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok().filter(|text| !text.is_empty())
}

//! ethtool's ioctl (linux/ethtool.h).

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
    rest: [u32; 40],
}
const _: () = assert!(size_of::<DriverInfo>() == 196);

impl Interface {
    /// Returns the name of the interface's driver, if it reports one.
    pub fn driver(&self) -> Option<String> {
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 40] };
        self.ethtool(&mut info).ok()?;
        let name = info.driver.split(|byte| *byte == 0).next()?;
        String::from_utf8(name.to_vec()).ok()
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

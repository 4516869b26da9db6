//! ethtool's ioctl (linux/ethtool.h).

use std::io;
use std::ptr;

use crate::Interface;

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

impl Interface {
    /// How many queues the interface has, where its driver says so.
    pub fn queues(&self) -> Option<u32> {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        self.ethtool(&mut channels).ok()?;
        Some(channels.combined + channels.rx.max(channels.tx))
    }

    /// Has the kernel compute checksums of what the interface transmits, and not leave them to
    /// hardware.
    pub fn compute_checksums(&self) -> io::Result<()> {
        self.ethtool(&mut Value { command: ETHTOOL_STXCSUM, data: 0 })
    }

    /// Whether the driver takes VLAN tags off received frames, and says beside a frame what the tag was.
    pub fn takes_vlan_tags_off(&self) -> io::Result<bool> {
        Ok(self.flags()? & FLAG_RXVLAN != 0)
    }

    /// Has the driver take VLAN tags off received frames, or leave them there. An error where it cannot
    /// but do the other.
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

    /// `SIOCETHTOOL` with one of the structs above.
    fn ethtool<T>(&self, argument: &mut T) -> io::Result<()> {
        const SIOCETHTOOL: libc::Ioctl = 0x8946;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = ptr::from_mut(argument).cast();
        // SAFETY: the kernel reads the name, and reads and writes the struct of the command in it.
        unsafe { self.ioctl(SIOCETHTOOL, &mut request) }
    }
}

//! `tap:INTERFACE`: the device of a TAP or macvtap interface, through which a virtual machine's
//! frames pass: one per `read` and `write`. If the port's user handles offloads, each has a
//! virtio-net header, and may be a packet of 64 KiB that is not segmented yet.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_bpf::BypassEntry;
use dray_netdev::Interface;
use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use dray_netdev::privilege::{Capability, MKNOD, NET_ADMIN, SYS_ADMIN};

use crate::session::link::Link;
use crate::session::passed::describe;
use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::session::status::{LinkState, LinkStatus};
use crate::uri::failed::Failed;
use crate::uri::failed::refused;
use crate::uri::interface;
use crate::uri::netns;
use crate::uri::query::{Query, UriError, write_query};
use crate::uri::scheme::{Claim, Scheme, Socket};
use crate::{Port, Wait};

mod calls;
mod device;
mod drops;
mod receive;
mod transmit;

use device::Device;
use drops::Drops;
use receive::TapReceive;
use transmit::TapTransmit;

/// Name of a TAP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapUri {
    /// The network interface.
    pub interface: String,
    /// Number of queues, 1 to 16, among which the kernel divides frames by flow.
    pub queues: u16,
    /// True to leave segments together and checksums partial for a user that handles offloads.
    pub offload: bool,
    /// MTU that the interface gets; `None`: it keeps its own.
    pub mtu: Option<usize>,
    /// File of the network namespace that has the interface; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// How to wait for frames.
    pub wait: Wait,
}

impl TapUri {
    /// Names the port of an interface, with the defaults of all keys.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            queues: 1,
            offload: true,
            mtu: None,
            netns: None,
            wait: Wait::Block,
        }
    }

    /// Opens one device for each queue.
    fn open_queues(&self, offloads: bool) -> Result<Port, Failed> {
        let mut port = Port { rx: Vec::new(), tx: Vec::new(), link: None };
        let mut opened = None;
        self.set_up_early();
        for _ in 0..self.queues {
            let Device { file, is_macvtap, offloads } =
                Device::open(&self.interface, self.queues > 1, offloads)?;
            // The first device may have created the interface.
            let (frame_max, drops) = match opened {
                Some(frame_max) => (frame_max, None),
                None => {
                    let drops = Drops::new(&self.interface, is_macvtap);
                    let drops = drops.map_err(|error| ("counters", error))?;
                    (self.set_up()?, Some(drops))
                }
            };
            opened = Some(frame_max);
            let device = Arc::new(file);
            port.link.get_or_insert_with(|| TapLink::shared(&device, None));
            port.rx.push(Box::new(TapReceive::new(device.clone(), drops, offloads, self.wait)));
            port.tx.push(Box::new(TapTransmit::new(device, frame_max, offloads)));
        }
        Ok(port)
    }

    /// Opens a device for each queue, and sets the interface up.
    fn prepare_queues(&self) -> Result<Vec<OwnedFd>, Failed> {
        self.set_up_early();
        let open = |_| Device::open(&self.interface, self.queues > 1, self.offload);
        let devices: Vec<_> = (0..self.queues).map(open).collect::<Result<_, _>>()?;
        self.set_up()?;
        Ok(devices.into_iter().map(|device| device.file.into()).collect())
    }

    /// Takes devices that another program has opened, and with them perhaps the table of a bypass.
    fn open_devices(
        &self,
        mut descriptors: Vec<OwnedFd>,
        frame_max: usize,
        offloads: bool,
    ) -> Result<Port, Failed> {
        let (have, queues) = (descriptors.len(), usize::from(self.queues));
        let table = if have == queues + 1 { descriptors.pop() } else { None };
        if descriptors.len() != queues {
            return Err(refused(format!("there are {have}; give one for each of {queues} queues")));
        }
        let entry = table.map(|table| {
            let what = describe(&table);
            BypassEntry::find(table, &self.interface).map_err(|error| {
                let right =
                    format!("give one for each of {queues} queues, or also a bypass's table");
                refused(format!("the last of {have} is {what}: {error}; {right}"))
            })
        });
        let mut entry = entry.transpose()?;
        let mut port = Port { rx: Vec::new(), tx: Vec::new(), link: None };
        for descriptor in descriptors {
            let Device { file, offloads, .. } =
                Device::of(descriptor, &self.interface, self.queues > 1, offloads)?;
            let device = Arc::new(file);
            port.link.get_or_insert_with(|| TapLink::shared(&device, entry.take()));
            port.rx.push(Box::new(TapReceive::new(device.clone(), None, offloads, self.wait)));
            port.tx.push(Box::new(TapTransmit::new(device, frame_max, offloads)));
        }
        Ok(port)
    }

    /// Sets the interface up before its device is opened, if it exists: the kernel then reports its
    /// carrier at once, otherwise up to a second later. [`set_up`](Self::set_up) reports errors.
    fn set_up_early(&self) {
        if let Ok(interface) = Interface::find(&self.interface) {
            let _ = interface.set_up();
        }
    }

    /// Sets the interface up and waits until it carries frames; returns the length of the longest
    /// frame without a tag.
    fn set_up(&self) -> Result<usize, Failed> {
        let interface =
            Interface::find(&self.interface).map_err(|error| ("interface index", error))?;
        if let Some(mtu) = self.mtu {
            interface.set_mtu(mtu).map_err(|error| ("setting the MTU", error))?;
        }
        set_up(&interface).map_err(|error| ("setting the interface up", error))?;
        let mtu = interface.mtu().map_err(|error| ("MTU", error))?;
        Ok(FRAME_MAX.min(mtu + ETHERNET_LEN))
    }
}

/// Least MTU of an interface, and the largest whose frames every port carries.
const MTU_MIN: usize = 68;
const MTU_MAX: usize = FRAME_MAX - ETHERNET_LEN;

/// Maximum time until an interface carries frames after a program opened its device.
const CARRIER_MAX: Duration = Duration::from_secs(2);

/// Sets the interface up and waits for its carrier: until then, frames for it are dropped.
fn set_up(interface: &Interface) -> io::Result<()> {
    if !interface.is_up()? {
        interface.set_up()?;
    }
    let deadline = Instant::now() + CARRIER_MAX;
    while !interface.is_running()? {
        if Instant::now() > deadline {
            let what = "no carrier: is the other end of the interface set up?";
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Link of an interface.
struct TapLink {
    device: Arc<File>,
    /// If its frames may bypass the port's user.
    entry: Option<BypassEntry>,
}

impl TapLink {
    fn shared(device: &Arc<File>, entry: Option<BypassEntry>) -> Arc<dyn Link> {
        Arc::new(Self { device: device.clone(), entry })
    }
}

impl Link for TapLink {
    fn status(&self) -> LinkStatus {
        LinkStatus { state: LinkState::Running, ..LinkStatus::default() }
    }

    fn bypass(&self) -> Option<&BypassEntry> {
        self.entry.as_ref()
    }

    fn is_down(&self) -> bool {
        // The device of an interface that is down takes no frames.
        let mut fds = [PollFd::new(&*self.device, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).is_ok()
            && !fds[0].revents().contains(PollFlags::OUT)
    }
}

impl Scheme for TapUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let interface = interface::parse(body, query, "tap")?;
        let offload = query.flag("offload", true)?;
        let queues = query.queues()?;
        let read_mtu =
            |text: &str| text.parse().ok().filter(|mtu| (MTU_MIN..=MTU_MAX).contains(mtu));
        let mtu = query.take("mtu", "68 to 9000, in bytes", read_mtu)?;
        let netns = netns::parse(query)?;
        Ok(Self { interface, queues, offload, mtu, netns, wait: Wait::parse(query)? })
    }

    /// Opens the device of the interface, which is created if it does not exist, sets the interface
    /// up, and waits until it carries frames.
    fn open(&self, _: Option<Socket>) -> Result<Port, Failed> {
        netns::open_in(self.netns.as_deref(), || self.open_queues(false))
    }

    fn open_offloading(&self, _: Option<Socket>) -> Result<Port, Failed> {
        netns::open_in(self.netns.as_deref(), || self.open_queues(self.offload))
    }

    fn open_with(&self, descriptors: Vec<OwnedFd>) -> Result<Port, Failed> {
        let frame_max = FRAME_MAX.min(self.mtu.unwrap_or(MTU_MAX) + ETHERNET_LEN);
        self.open_devices(descriptors, frame_max, self.offload)
    }

    fn resume(
        &self,
        snapshot: PortSnapshot,
        offloads: bool,
    ) -> Result<(Port, Option<Resumption>), Failed> {
        let (devices, frame_max) = snapshot.into_devices();
        Ok((self.open_devices(devices, frame_max, offloads && self.offload)?, None))
    }

    fn prepare(&self) -> Result<Vec<OwnedFd>, Failed> {
        netns::open_in(self.netns.as_deref(), || self.prepare_queues())
    }

    fn capabilities(&self, what: &str) -> &'static [Capability] {
        match what {
            // The node of the device is created for a moment.
            "macvtap device" => &[MKNOD],
            "network namespace" => &[SYS_ADMIN],
            _ => &[NET_ADMIN],
        }
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(match &self.netns {
            Some(netns) => Claim::InterfaceOf(netns, &self.interface),
            None => Claim::Interface(&self.interface),
        })
    }
}

impl fmt::Display for TapUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tap:{}", self.interface)?;
        let pairs = [
            (self.queues != 1).then(|| ("queues", self.queues.to_string())),
            (!self.offload).then(|| ("offload", "0".to_owned())),
            self.mtu.map(|mtu| ("mtu", mtu.to_string())),
            self.netns.as_ref().map(|path| ("netns", path.display().to_string())),
            self.wait.pair(),
        ];
        write_query(f, pairs.into_iter().flatten())
    }
}

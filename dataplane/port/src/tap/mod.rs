//! `tap:INTERFACE`: the device of a TAP or macvtap interface, through which a virtual machine's
//! frames pass: one per `read` and `write`.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_netdev::Interface;
use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX};

use dray_daemon::BoundSocket;
use dray_netdev::privilege::{Capability, MKNOD, NET_ADMIN};

use crate::query::{Query, UriError, write_query};
use crate::scheme::{Claim, Failed, Scheme};
use crate::{Port, Wait, interface};

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
    /// How to wait for frames.
    pub wait: Wait,
}

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

impl Scheme for TapUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let interface = interface::parse(body, query, "tap")?;
        Ok(Self { interface, wait: Wait::parse(query)? })
    }

    /// Opens the device of the interface, which is created if it does not exist, sets the interface
    /// up, and waits until it carries frames.
    fn open(&self, _: Option<BoundSocket>) -> Result<Port, Failed> {
        let Device { file, is_macvtap } = Device::open(&self.interface)?;
        let interface =
            Interface::find(&self.interface).map_err(|error| ("interface index", error))?;
        set_up(&interface).map_err(|error| ("setting the interface up", error))?;
        let mtu = interface.mtu().map_err(|error| ("MTU", error))?;
        let drops = Drops::new(&self.interface, is_macvtap);
        let drops = drops.map_err(|error| ("counters", error))?;
        let device = Arc::new(file);
        let frame_max = FRAME_MAX.min(mtu + ETHERNET_LEN);
        Ok(Port {
            rx: vec![Box::new(TapReceive::new(device.clone(), drops, self.wait))],
            tx: vec![Box::new(TapTransmit::new(device, frame_max))],
            link: None,
        })
    }

    fn capabilities(&self, what: &str) -> &'static [Capability] {
        match what {
            // The node of the device is created for a moment.
            "macvtap device" => &[MKNOD],
            _ => &[NET_ADMIN],
        }
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Interface(&self.interface))
    }
}

impl fmt::Display for TapUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tap:{}", self.interface)?;
        write_query(f, self.wait.pair())
    }
}

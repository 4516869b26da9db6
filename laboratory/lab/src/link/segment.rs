//! A segment: the interfaces that are connected with each other, and the hosts between them.

use std::any::Any;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::address::PREFIX_LEN;
use super::end::{End, Link};
use super::kind::LinkKind;
use crate::modules::Modules;
use crate::netlink::{Netlink, NewInterface};
use crate::{Lab, LabError, NetworkNamespace};

/// Objects other than interfaces that a segment needs until its lab is dropped.
pub(super) type KeepAlive = Option<Box<dyn Any>>;

/// A host that containers are connected to: the lab's "host", or one beside it.
#[derive(Clone, Copy)]
pub(super) struct Host<'a> {
    pub(super) namespace: &'a NetworkNamespace,
    pub(super) netlink: &'a Netlink,
}

/// The interfaces of one call of [`Lab::link`], to be connected with each other.
pub(super) struct Segment<'a> {
    pub(super) lab: &'a Lab,
    pub(super) kind: LinkKind,
    /// Number of the segment's first link.
    pub(super) number: u32,
    pub(super) links: &'a [Link],
    pub(super) mtu: u32,
    /// See [`LinkOptions::cable_bps`](super::LinkOptions::cable_bps).
    pub(super) cable_bps: Option<u64>,
}

impl Segment<'_> {
    /// Ends of all links: first and second end of the first link, and so on.
    pub(super) fn ends(&self) -> impl Iterator<Item = &End> {
        self.links.iter().flat_map(|link| &link.ends)
    }

    /// Ends of all links on one side, 0 or 1.
    pub(super) fn ends_at(&self, side: usize) -> impl Iterator<Item = &End> {
        self.links.iter().map(move |link| &link.ends[side])
    }

    /// The lab's "host".
    pub(super) fn host(&self) -> Host<'_> {
        let host = self.lab.host();
        Host { namespace: host.namespace(), netlink: host.netlink() }
    }

    /// Description of the interface to create for an end.
    pub(super) fn interface_at<'a>(&'a self, end: &'a End) -> NewInterface<'a> {
        let namespace = self.lab[end.container].namespace();
        NewInterface { namespace, name: end.name(), mac: Some(end.mac), mtu: self.mtu }
    }

    /// For `map_err` when creating an interface of the kernel module `module` (config option
    /// `option`): if the kernel lacks the module, the error states how to get it.
    pub(super) fn making(&self, module: &str, option: &str) -> impl FnOnce(io::Error) -> LabError {
        move |error| match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP) => LabError::NotInKernel {
                what: module.to_owned(),
                remedy: Modules::of_running_kernel().remedy(module, option),
            },
            _ => self.doing(module)(error),
        }
    }

    /// For `map_err`: names the operation that failed and its link.
    pub(super) fn doing(&self, what: &str) -> impl FnOnce(io::Error) -> LabError + use<> {
        LabError::doing(format!("{} link {}: {what}", self.kind, self.number))
    }

    /// Sets up the interfaces of all ends and waits until they carry frames.
    pub(super) fn set_up(&self) -> Result<(), LabError> {
        for end in self.ends() {
            let netlink = self.lab[end.container].netlink();
            let index = netlink.interface(end.name()).map_err(self.doing("interface"))?.index;
            netlink.set_up(index).map_err(self.doing("set up"))?;
        }
        self.ends().try_for_each(|end| {
            self.wait_until_running(self.lab[end.container].netlink(), end.name())
        })
    }

    /// Gives both interfaces of a link an address, and each the other's addresses.
    pub(super) fn set_addresses(&self, link: &Link) -> Result<(), LabError> {
        for end in &link.ends {
            let netlink = self.lab[end.container].netlink();
            let index = netlink.interface(end.name()).map_err(self.doing("interface"))?.index;
            let address = netlink.add_address(index, end.ip, PREFIX_LEN);
            address.map_err(self.doing("address"))?;
        }
        self.introduce(link)
    }

    /// Gives each interface of a link a neighbour entry with the other's addresses.
    pub(super) fn introduce(&self, link: &Link) -> Result<(), LabError> {
        let [a, b] = &link.ends;
        for (end, peer) in [(a, b), (b, a)] {
            let netlink = self.lab[end.container].netlink();
            let index = netlink.interface(end.name()).map_err(self.doing("interface"))?.index;
            netlink.add_neighbour(index, peer.ip, peer.mac).map_err(self.doing("neighbour"))?;
        }
        Ok(())
    }

    /// Waits until an interface carries frames. After it is set up it drops everything, uncounted,
    /// until the kernel has noticed that its counterpart is up too. Cards negotiate for seconds,
    /// and a virtual function polls its card only every two seconds.
    pub(super) fn wait_until_running(&self, netlink: &Netlink, name: &str) -> Result<(), LabError> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !netlink.interface(name).map_err(self.doing(name))?.is_running {
            if Instant::now() > deadline {
                let source = io::Error::from(io::ErrorKind::TimedOut);
                return Err(self.doing(&format!("waiting for {name} to carry frames"))(source));
            }
            self.lab.cancel().check()?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

//! SR-IOV: virtual functions of one network card, moved into the containers. The card's own switch
//! forwards frames among them.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use dray_wire::MacAddr;

use super::card::{Card, no_card, write};
use super::end::{Attachment, End, Link, LinkOptions};
use super::function::{Functions, VirtualFunction};
use super::kind::LinkKind;
use super::segment::Segment;
use crate::modules::Modules;
use crate::netlink::Netlink;
use crate::{ContainerId, Lab, LabError, NetworkNamespace};

/// Time limit for a driver to create the interface of a function.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval of waits.
const INTERVAL: Duration = Duration::from_millis(5);

/// Driver that gives a device to a program in user space.
const VFIO: &str = "vfio-pci";

pub(super) fn link(
    lab: &mut Lab,
    kind: LinkKind,
    pairs: &[[ContainerId; 2]],
    options: LinkOptions,
) -> Result<Vec<Link>, LabError> {
    let (name, functions) = lab.chosen_card().cloned().ok_or_else(|| {
        no_card(
            "give a network card with --parent; containers get its virtual functions".to_owned(),
        )
    })?;
    if options.has_drivers {
        check_vfio(&name)?;
    }
    let card = lab.card(&name, options.functions)?;
    let numbers = card.take(2 * pairs.len());
    if options.has_drivers {
        return card.hand_to_drivers(lab, kind, pairs, numbers, &functions);
    }
    lab.link_interfaces(kind, pairs, options, |segment| {
        card.hand_out(segment, numbers, &functions)?;
        Ok(None)
    })
}

/// Fails if no program in user space could have functions of the card.
fn check_vfio(card: &str) -> Result<(), LabError> {
    let mut groups = fs::read_dir("/sys/kernel/iommu_groups").into_iter().flatten();
    if groups.next().is_none() {
        let what = "drivers in user space need an IOMMU: enable it in the firmware, and boot with \
                    intel_iommu=on";
        return Err(no_card(format!("{card}: {what}")));
    }
    if !Path::new("/sys/bus/pci/drivers").join(VFIO).exists() {
        let remedy = Modules::of_running_kernel().remedy("vfio_pci", "CONFIG_VFIO_PCI");
        return Err(LabError::NotInKernel { what: VFIO.to_owned(), remedy });
    }
    Ok(())
}

impl Card {
    /// Gives each end the interface of a function, which is configured before its driver starts.
    fn hand_out(
        &self,
        segment: &Segment<'_>,
        numbers: Range<usize>,
        functions: &Functions,
    ) -> Result<(), LabError> {
        let doing = |what: &str| segment.doing(&format!("{what} of card {}", self.name));
        let netlink = self.netlink().map_err(doing("network namespace"))?;
        let has_mac = self.configure(segment, &netlink, numbers.clone(), functions)?;
        write(&self.name, "sriov_drivers_autoprobe", "1").map_err(doing("drivers"))?;
        // Drivers read the address when they start, so they are started only now.
        for number in numbers.clone() {
            let started = self.start_driver(number, None);
            started.map_err(doing("driver of a virtual function"))?;
        }
        for ((number, end), has_mac) in numbers.zip(segment.ends()).zip(has_mac) {
            let mac = (!has_mac).then_some(end.mac);
            self.move_into(segment, &netlink, (number, mac), end)?;
        }
        Ok(())
    }

    /// Makes links whose ends are functions without an interface, for drivers in user space.
    fn hand_to_drivers(
        &self,
        lab: &mut Lab,
        kind: LinkKind,
        pairs: &[[ContainerId; 2]],
        numbers: Range<usize>,
        functions: &Functions,
    ) -> Result<Vec<Link>, LabError> {
        let doing = |what: &str| LabError::doing(format!("{kind} link: {what} of {}", self.name));
        let addresses = numbers.clone().map(|number| self.address(number));
        let addresses: Vec<_> =
            addresses.collect::<Result<_, _>>().map_err(doing("bus addresses"))?;
        let link = |(pair, &containers): (usize, &[ContainerId; 2])| {
            let at = |side: usize| Attachment::Function(addresses[2 * pair + side].clone());
            Link::new(containers, [at(0), at(1)], lab.next_ends(), true)
        };
        let mut links: Vec<_> = pairs.iter().enumerate().map(link).collect();
        let Some(first) = links.first() else { return Ok(links) };
        let number = first.ends[0].id.link();
        let segment = Segment { lab, kind, number, links: &links, mtu: 0, cable_bps: None };
        let netlink = self.netlink().map_err(doing("network namespace"))?;
        let has_mac = self.configure(&segment, &netlink, numbers.clone(), functions)?;
        let ends = links.iter_mut().flat_map(|link| &mut link.ends);
        for ((number, end), has_mac) in numbers.zip(ends).zip(has_mac) {
            if !has_mac {
                // The address is the function's own, which its network driver knows.
                write(&self.name, "sriov_drivers_autoprobe", "1").map_err(doing("drivers"))?;
                self.start_driver(number, None).map_err(doing("driver"))?;
                end.mac = self.read_interface(lab, number, "address")?;
                end.station = end.mac;
                self.stop_driver(number).map_err(doing("driver"))?;
            }
            self.start_driver(number, Some(VFIO)).map_err(doing("driver"))?;
        }
        Ok(links)
    }

    fn netlink(&self) -> io::Result<Netlink> {
        Netlink::open(&NetworkNamespace::current()?)
    }

    /// Configures the functions of a segment's ends. Returns for each whether the card gives it
    /// its address.
    fn configure(
        &self,
        segment: &Segment<'_>,
        netlink: &Netlink,
        numbers: Range<usize>,
        functions: &Functions,
    ) -> Result<Vec<bool>, LabError> {
        let doing = |what: &str| segment.doing(&format!("{what} of card {}", self.name));
        let index = netlink.interface(&self.name).map_err(doing("interface"))?.index;
        // Links may outnumber VLANs, but no card has functions for that many links. The frames of
        // the first link alone need no VLAN.
        let own_vlan = 1 + (segment.number - 1) % 4094;
        let vlan = (own_vlan as u16, segment.number > 1);
        let set = |(place, (number, end)): (usize, (usize, &End))| {
            let function = VirtualFunction::new(number, functions, place, end.mac, vlan);
            let set = function.set(netlink, index);
            set.map_err(doing(&format!("virtual function {number}")))
        };
        numbers.zip(segment.ends()).enumerate().map(set).collect()
    }

    /// Reads a file of a function's interface, as soon as its driver has made it.
    fn read_interface<T: FromStr>(
        &self,
        lab: &Lab,
        number: usize,
        file: &str,
    ) -> Result<T, LabError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let interface = self.interface(number);
            let text = interface.and_then(|path| fs::read_to_string(path.join(file)).ok());
            if let Some(value) = text.and_then(|text| text.trim().parse().ok()) {
                return Ok(value);
            }
            if Instant::now() > deadline {
                let what = "virtual functions got no interface; is their driver installed?";
                return Err(no_card(format!("{}: {what}", self.name)));
            }
            lab.cancel().check()?;
            thread::sleep(INTERVAL);
        }
    }

    /// Moves the interface of a function into a container, where it gets an address that the card
    /// does not give it.
    fn move_into(
        &self,
        segment: &Segment<'_>,
        netlink: &Netlink,
        (number, mac): (usize, Option<MacAddr>),
        end: &End,
    ) -> Result<(), LabError> {
        let doing = |what: &str| segment.doing(&format!("{what} {number} of card {}", self.name));
        // Identified by its index: another program may be about to rename it.
        let index = self.read_interface(segment.lab, number, "ifindex")?;
        let container = &segment.lab[end.container];
        let moved = netlink.move_to(index, container.namespace(), end.name());
        moved.map_err(doing("moving virtual function"))?;
        let index = container.netlink().interface(end.name());
        let index = index.map_err(doing("virtual function"))?.index;
        if let Some(mac) = mac {
            let set = container.netlink().set_mac(index, mac);
            set.map_err(doing("address of virtual function"))?;
        }
        container.netlink().set_mtu(index, segment.mtu).map_err(doing("MTU of virtual function"))
    }
}

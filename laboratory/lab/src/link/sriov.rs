//! SR-IOV: virtual functions of one network card, moved into the containers. The card's own switch
//! forwards frames among them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use dray_wire::MacAddr;

use super::card::{Card, no_card, write};
use super::end::{End, Link, LinkOptions};
use super::function::{Functions, VirtualFunction};
use super::kind::LinkKind;
use super::segment::Segment;
use crate::netlink::Netlink;
use crate::{ContainerId, Lab, LabError, NetworkNamespace};

/// Time limit for a driver to create the interface of a function.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval of waits.
const INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn link(
    lab: &mut Lab,
    kind: LinkKind,
    pairs: &[[ContainerId; 2]],
    options: LinkOptions,
) -> Result<Vec<Link>, LabError> {
    let (name, functions) = lab.card().cloned().ok_or_else(|| {
        no_card(
            "give a network card with --parent; containers get its virtual functions".to_owned(),
        )
    })?;
    let dir = lab.dir()?;
    lab.link_interfaces(kind, pairs, options, |segment| {
        let count = segment.ends().count();
        let card = Card::create(dir, &name, count)?;
        card.hand_out(segment, &functions)?;
        Ok(Some(Box::new(card)))
    })
}

impl Card {
    /// Gives each end a function, which is configured before its driver starts.
    fn hand_out(&self, segment: &Segment<'_>, functions: &Functions) -> Result<(), LabError> {
        let doing = |what: &str| segment.doing(&format!("{what} of card {}", self.name));
        let here = NetworkNamespace::current().map_err(doing("network namespace"))?;
        let netlink = Netlink::open(&here).map_err(doing("network namespace"))?;
        let index = netlink.interface(&self.name).map_err(doing("interface"))?.index;
        // Links may outnumber VLANs, but no card has functions for that many links.
        let own_vlan = 1 + (segment.number - 1) % 4094;
        let mut has_mac = Vec::new();
        for (number, end) in segment.ends().enumerate() {
            // The frames of the first link alone need no VLAN.
            let vlan = (own_vlan as u16, segment.number > 1);
            let function = VirtualFunction::new(functions, number, end.mac, vlan);
            let set = function.set(&netlink, index);
            has_mac.push(set.map_err(doing(&format!("virtual function {number}")))?);
        }
        write(&self.name, "sriov_drivers_autoprobe", "1").map_err(doing("drivers"))?;
        // Drivers read the address when they start, so they are started only now.
        for number in 0..segment.ends().count() {
            let address = fs::canonicalize(self.function(number)).map_err(doing("bus address"))?;
            let address = address.file_name().unwrap_or_default().as_encoded_bytes();
            let begun = fs::write("/sys/bus/pci/drivers_probe", address);
            begun.map_err(doing("driver of a virtual function"))?;
        }
        for (number, end) in segment.ends().enumerate() {
            let mac = (!has_mac[number]).then_some(end.mac);
            self.move_into(segment, &netlink, (number, mac), end)?;
        }
        Ok(())
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
        let deadline = Instant::now() + TIMEOUT;
        let index = loop {
            // Identified by its index: another program may be about to rename it.
            let interface = self.interface(number);
            let text = interface.and_then(|path| fs::read_to_string(path.join("ifindex")).ok());
            if let Some(index) = text.and_then(|text| text.trim().parse().ok()) {
                break index;
            }
            if Instant::now() > deadline {
                let what = "virtual functions got no interface; is their driver installed?";
                return Err(no_card(format!("{}: {what}", self.name)));
            }
            segment.lab.cancel().check()?;
            thread::sleep(INTERVAL);
        };
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

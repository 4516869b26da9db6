//! Networks made by container engines: the lab makes the interfaces that they are based on, and
//! finds the interfaces that the engines made.

use std::fs;

use super::address::EndId;
use super::end::{Attachment, Link, LinkOptions};
use super::kind::{Carries, LinkKind};
use super::segment::Segment;
use super::{bridge, ipvlan, parent};
use crate::runtime::network::{self, Driver};
use crate::{ContainerId, Lab, LabError, Runtime};

/// Segment number used before there are links.
const NUMBER: u32 = 0;

impl Lab {
    /// Makes the "host" interface that a network is based on, if it needs one; returns its name.
    pub(crate) fn make_base(&self, kind: LinkKind, mtu: u32) -> Result<Option<String>, LabError> {
        let (runtime, driver) = kind.engine().expect("an engine's network");
        let segment = Segment { lab: self, kind, number: NUMBER, links: &[], mtu };
        if driver.has_parent() {
            segment.create_host_pair(NUMBER, EndId::both(NUMBER).map(EndId::card_mac))?;
            if matches!(driver, Driver::IpvlanL2 | Driver::IpvlanL3) {
                ipvlan::check(&segment, &parent::name(NUMBER))?;
            }
            return Ok(Some(parent::name(NUMBER)));
        }
        if runtime == Runtime::Lxc {
            // LXC makes no bridge itself: a service of its package does.
            segment.create_bridge(segment.host())?;
            return Ok(Some(bridge::name(NUMBER)));
        }
        Ok(None)
    }
}

/// Finds the interfaces that an engine gave the containers, and gives each end the other's
/// addresses.
pub(super) fn find(
    lab: &mut Lab,
    kind: LinkKind,
    pairs: &[[ContainerId; 2]],
    LinkOptions { mtu, addressed, .. }: LinkOptions,
) -> Result<Vec<Link>, LabError> {
    let (_, driver) = kind.engine().expect("an engine's network");
    assert_eq!(lab.network(), Some((kind, mtu)), "the network was created before the containers");
    let addressed = addressed || kind.carries == Carries::OwnIp;
    let mut links = Vec::new();
    for &containers in pairs {
        let interfaces = containers.map(|id| Attachment::Interface(lab.next_interface(id)));
        let mut link = Link::new(containers, interfaces, lab.next_ends(), addressed);
        for end in &mut link.ends {
            let interface = lab.interface(end)?;
            end.mac = interface.mac;
            end.station = end.mac;
            if let (Driver::Bridge, Some(port)) = (driver, interface.link) {
                // Avoids flooding frames for stations that send none, as on the lab's own bridges.
                let doing = LabError::doing(format!("{kind}: forwarding"));
                lab.host().netlink().add_forwarding(port, end.mac).map_err(doing)?;
            }
            if addressed {
                end.ip = network::address(end.container.0);
            }
            // Engines give containers a default route, and a machine with an engine may forward IP:
            // frames for a station behind an interface would be routed back.
            let doing =
                LabError::doing(format!("disabling routing in {}", lab[end.container].name()));
            let stop = || fs::write("/proc/sys/net/ipv4/ip_forward", "0");
            lab[end.container].namespace().enter(stop).map_err(doing)?;
        }
        links.push(link);
    }
    let segment = Segment { lab, kind, number: NUMBER, links: &links, mtu };
    segment.set_up()?;
    if addressed {
        links.iter().try_for_each(|link| segment.introduce(link))?;
    }
    Ok(links)
}

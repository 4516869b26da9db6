//! Networks made by container engines: the lab makes the interfaces that they are based on, and
//! finds the interfaces that the engines made.

use std::fs;

use super::address::EndId;
use super::end::{Attachment, Link, LinkOptions};
use super::kind::{Carries, LinkKind};
use super::segment::Segment;
use super::{bridge, ipvlan, parent, rules};
use crate::runtime::network::{self, Driver, Network};
use crate::{ContainerId, Lab, LabError, Runtime};

impl Lab {
    /// Makes the "host" interface that a network is based on, if it needs one; returns its name.
    /// Networks have numbers from 0.
    pub(crate) fn make_base(
        &self,
        number: u32,
        kind: LinkKind,
        mtu: u32,
    ) -> Result<Option<String>, LabError> {
        let (runtime, driver) = kind.engine().expect("an engine's network");
        let segment = Segment { lab: self, kind, number, links: &[], mtu, cable_bps: None };
        if driver.has_parent() {
            segment.create_host_pair(number, EndId::both(number).map(EndId::card_mac))?;
            if matches!(driver, Driver::IpvlanL2 | Driver::IpvlanL3) {
                ipvlan::check(&segment, &parent::name(number))?;
            }
            return Ok(Some(parent::name(number)));
        }
        if driver == Driver::FilteredBridge {
            let passed = rules::pass_frames(segment.host().namespace);
            passed.map_err(|error| rules::not_in_kernel(&segment, error))?;
        }
        if runtime == Runtime::Lxc {
            // LXC makes no bridge itself: a service of its package does.
            segment.create_bridge(segment.host())?;
            return Ok(Some(bridge::name(number)));
        }
        Ok(None)
    }
}

impl Lab {
    /// Makes a further network of the engine.
    fn make_network(&self, number: usize, kind: LinkKind, mtu: u32) -> Result<(), LabError> {
        let (_, driver) = kind.engine().expect("an engine's network");
        let base = self.make_base(number as u32, kind, mtu)?;
        let engine = self.engine.as_ref().expect("there are containers");
        let network = Network { driver, base: base.as_deref(), mtu };
        engine.create_network(number, network, self.host().init(), self.cancel())
    }

    /// Lets a container join a further network; returns the name of its interface there.
    fn connect(&self, number: usize, id: ContainerId) -> Result<String, LabError> {
        let engine = self.engine.as_ref().expect("there are containers");
        let container = &self[id];
        let interfaces = || {
            let doing = LabError::doing(format!("interfaces of {}", container.name()));
            container.netlink().interfaces().map_err(doing)
        };
        let before = interfaces()?;
        let address = network::address(number, id.0);
        let host = self.host().init();
        engine.connect(number, container.name(), address, host, self.cancel())?;
        let is_new = |name: &String| before.iter().all(|other| other.name != *name);
        let name = interfaces()?.into_iter().map(|interface| interface.name).find(is_new);
        name.ok_or_else(|| LabError::Container {
            container: container.name().to_owned(),
            what: "its engine gave it no interface in a further network".to_owned(),
        })
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
    let number = lab.next_network();
    if number > 0 {
        lab.make_network(number, kind, mtu)?;
    }
    let mut links = Vec::new();
    for &containers in pairs {
        let names = match number {
            0 => containers.map(|id| lab.next_interface(id)),
            _ => [lab.connect(number, containers[0])?, lab.connect(number, containers[1])?],
        };
        let interfaces = names.map(Attachment::Interface);
        let mut link = Link::new(containers, interfaces, lab.next_ends(), addressed);
        for end in &mut link.ends {
            let interface = lab.interface(end)?;
            end.mac = interface.mac;
            end.station = end.mac;
            if let (true, Some(port)) = (driver.is_bridge(), interface.link) {
                // Avoids flooding frames for stations that send none, as on the lab's own bridges.
                let doing = LabError::doing(format!("{kind}: forwarding"));
                lab.host().netlink().add_forwarding(port, end.mac).map_err(doing)?;
            }
            if addressed {
                end.ip = network::address(number, end.container.0);
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
    let segment = Segment { lab, kind, number: number as u32, links: &links, mtu, cable_bps: None };
    segment.set_up()?;
    if addressed {
        links.iter().try_for_each(|link| segment.introduce(link))?;
    }
    Ok(links)
}

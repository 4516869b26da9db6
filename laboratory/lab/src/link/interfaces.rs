//! Links whose ends are interfaces.

use super::end::{Attachment, End, Link, LinkOptions};
use super::kind::{Carries, EndKind, LinkKind};
use super::parent;
use super::segment::{KeepAlive, Segment};
use crate::netlink::Interface;
use crate::peer::{PeerDir, PeerSwitch};
use crate::{ContainerId, Lab, LabError};

impl Lab {
    /// Joins containers by interfaces, which `wire` creates and connects with each other.
    pub(super) fn link_interfaces(
        &mut self,
        kind: LinkKind,
        pairs: &[[ContainerId; 2]],
        LinkOptions { mtu, addressed, has_machines, cable_bps, .. }: LinkOptions,
        wire: impl FnOnce(&Segment<'_>) -> Result<KeepAlive, LabError>,
    ) -> Result<Vec<Link>, LabError> {
        let addressed = addressed || kind.carries == Carries::OwnIp;
        let link = |&containers: &[ContainerId; 2]| {
            let interfaces = containers.map(|id| Attachment::Interface(self.next_interface(id)));
            Link::new(containers, interfaces, self.next_ends(), addressed)
        };
        let mut links: Vec<_> = pairs.iter().map(link).collect();
        let Some(first) = links.first() else { return Ok(links) };
        let number = first.ends[0].id.link();
        let segment = Segment { lab: self, kind, number, links: &links, mtu, cable_bps };
        let held = wire(&segment)?;
        for link in &mut links {
            link.parent = kind.isolates.then(|| parent::name(number));
            for end in &mut link.ends {
                // Some kinds give their interfaces other Ethernet addresses.
                end.mac = self.interface(end)?.mac;
                if addressed || kind.carries == Carries::OwnMac {
                    end.station = end.mac;
                }
            }
        }
        let segment = Segment { lab: self, kind, number, links: &links, mtu, cable_bps };
        segment.set_up()?;
        if addressed {
            links.iter().try_for_each(|link| segment.set_addresses(link))?;
        }
        if has_machines && kind.end() == EndKind::Interface {
            let pairs = links.iter().flat_map(|Link { ends: [a, b], .. }| [(a, b), (b, a)]);
            let taps = pairs.map(|(end, peer)| segment.create_tap(end, peer));
            let taps = taps.collect::<Result<Vec<_>, _>>()?;
            let ends = links.iter_mut().flat_map(|link| &mut link.ends);
            ends.zip(taps).for_each(|(end, tap)| end.attachment = Attachment::Tap(tap));
        }
        self.keep_alive(held);
        Ok(links)
    }

    /// Joins containers by interfaces, which `start` creates, and by the switch that it starts.
    pub(super) fn link_by_switch(
        &mut self,
        kind: LinkKind,
        pairs: &[[ContainerId; 2]],
        options: LinkOptions,
        start: impl FnOnce(&Segment<'_>, &PeerDir) -> Result<PeerSwitch, LabError>,
    ) -> Result<Vec<Link>, LabError> {
        let dir = self.dir()?;
        let mut switch = None;
        let links = self.link_interfaces(kind, pairs, options, |segment| {
            switch = Some(start(segment, &dir)?);
            Ok(None)
        })?;
        switch.into_iter().for_each(|switch| self.set_switch(switch));
        Ok(links)
    }

    pub(super) fn interface(&self, end: &End) -> Result<Interface, LabError> {
        let container = &self[end.container];
        let doing = LabError::doing(format!("{} {}", container.name(), end.name()));
        container.netlink().interface(end.name()).map_err(doing)
    }
}

//! Our switch on two hosts: its VXLAN ports join them through a veth pair that stands for the
//! network. One process has the ports of both, so that a trial needs one CPU for them; each frame
//! takes the way from host to host.

use std::os::fd::{AsFd, AsRawFd};

use super::end::{Attachment, Link, LinkOptions};
use super::hosts::SecondHost;
use super::kind::LinkKind;
use super::memory::socket;
use super::segment::Segment;
use crate::peer::{OwnPort, OwnSwitch, PeerSwitch, Wiring};
use crate::{ContainerId, Lab, LabError};

/// UDP port of the first link's network; further links have the next ones.
const PORT: u32 = 4789;

pub(super) fn link(
    lab: &mut Lab,
    kind: LinkKind,
    pairs: &[[ContainerId; 2]],
    options: LinkOptions,
) -> Result<Vec<Link>, LabError> {
    let dir = lab.dir()?;
    let link = |&containers| {
        let ids = lab.next_ends();
        let sockets = ids.map(|id| Attachment::Driver(socket(&dir, id)));
        Link::new(containers, sockets, ids, false)
    };
    let links: Vec<_> = pairs.iter().map(link).collect();
    let Some(first) = links.first() else { return Ok(links) };
    let ids = first.ends.each_ref().map(|end| end.id);
    let number = ids[0].link();
    let segment = Segment {
        lab,
        kind,
        number,
        links: &links,
        mtu: options.mtu,
        cable_bps: options.cable_bps,
    };
    let second = SecondHost::connect(&segment)?;
    second.set_addresses(&segment)?;
    let second = second.namespace;

    let host = format!("/proc/{}/ns/net", lab.host().pid().as_raw_nonzero());
    let hosts = [host, format!("/proc/{}/fd/{}", std::process::id(), second.as_fd().as_raw_fd())];
    let tunnel = |port: u32, side: usize| {
        let [here, there] = [ids[side].card_ip(), ids[1 - side].card_ip()];
        let netns = &hosts[side];
        let uri = format!("vxlan:{here}:{port}?vni={port}&remote={there}:{port}&netns={netns}");
        OwnPort { uri, vlan: None, is_end: false }
    };
    let ports = links.iter().zip(PORT..).flat_map(|(link, port)| {
        let [first, second] = link.ends.each_ref().map(|end| {
            let socket = end.socket().expect("each end has one");
            let uri = format!("vhost:{}", socket.display());
            OwnPort { uri, vlan: None, is_end: true }
        });
        // Ports are paired in this order.
        [first, tunnel(port, 0), tunnel(port, 1), second]
    });
    let ports = ports.collect();
    let (cpu, wiring) = (options.switch_cpu, Wiring::Pairs);
    let switch = OwnSwitch { cpu, wiring, sleeps: false, ports };
    let switch = PeerSwitch::start_own(&dir, lab.program(), &switch, lab.cancel())?;
    lab.set_switch(switch);
    lab.keep_alive(Some(Box::new(second)));
    Ok(links)
}

//! Links between pairs of containers.
//!
//! Pairs that are linked in one call share one segment: one bridge, one switch, one parent. A kind
//! of link is a constant in `kind.rs` and a file here that wires it, with what `end.rs`,
//! `segment.rs` and `interfaces.rs` offer to all of them.

pub(crate) mod address;
mod bridge;
pub(crate) mod card;
mod end;
mod engine;
pub(crate) mod function;
mod hosts;
mod interfaces;
mod ipvlan;
pub(crate) mod kind;
mod macvlan;
mod memory;
mod missing;
mod netkit;
pub(crate) mod netmap;
mod ovs;
mod parent;
mod rules;
mod segment;
mod sriov;
mod switch_pod;
mod switch_tap;
mod switch_vxlan;
mod tap;
mod tunnel;
mod unix;
mod veth;
pub(crate) mod wire;
mod xdp;

pub(crate) use address::PREFIX_LEN;
pub use end::{Attachment, End, Link, LinkOptions};
pub use function::Functions;
pub use kind::{Carries, EndKind, LinkKind};
pub use missing::missing;
pub use netmap::{has_netmap, netmap_uri};

use std::time::Instant;

use crate::{ContainerId, InterfaceCounters, Lab, LabError};
use segment::Segment;
use wire::Wire;

impl Lab {
    /// Joins containers in pairs that share one segment. Returns a link for each pair, in order.
    pub fn link(
        &mut self,
        kind: LinkKind,
        pairs: &[[ContainerId; 2]],
        options: LinkOptions,
    ) -> Result<Vec<Link>, LabError> {
        Ok(self.link_segments(kind, &[pairs.to_vec()], options)?.remove(0))
    }

    /// Joins containers in pairs; the pairs of each group share a segment of their own. One switch
    /// whose ends share memory has all segments. Returns a link for each pair, in order.
    pub fn link_segments(
        &mut self,
        kind: LinkKind,
        segments: &[Vec<[ContainerId; 2]>],
        options: LinkOptions,
    ) -> Result<Vec<Vec<Link>>, LabError> {
        let began = Instant::now();
        let lacks_segments = segments.len() > 1 && !kind.has_segments();
        if kind.has_program() && (self.switch().is_some() || lacks_segments) {
            return Err(LabError::SecondSwitch { kind: kind.name });
        }
        let links = match kind.wire {
            Wire::Switch(switch, wiring, protocol) => {
                let mut links =
                    memory::switch(self, (switch, wiring, protocol), segments, options)?;
                number_ports(links.iter_mut().flatten());
                links
            }
            _ => {
                let one = |pairs: &Vec<_>| {
                    let mut links = self.link_segment(kind, pairs, options)?;
                    number_ports(&mut links);
                    Ok(links)
                };
                segments.iter().map(one).collect::<Result<_, LabError>>()?
            }
        };
        self.linking += began.elapsed();
        Ok(links)
    }

    fn link_segment(
        &mut self,
        kind: LinkKind,
        pairs: &[[ContainerId; 2]],
        options: LinkOptions,
    ) -> Result<Vec<Link>, LabError> {
        match kind.wire {
            Wire::Direct => memory::direct(self, pairs),
            Wire::Unix => unix::sockets(self, pairs),
            Wire::Netmap(wiring) => netmap::ports(self, wiring, pairs),
            Wire::Switch(..) => unreachable!("one program has all segments"),
            Wire::SwitchTap(wiring) => self.link_by_switch(kind, pairs, options, |segment, dir| {
                switch_tap::start(segment, dir, wiring, options.switch_cpu)
            }),
            Wire::SwitchPod => self.link_by_switch(kind, pairs, options, |segment, dir| {
                switch_pod::start(segment, dir, options.switch_cpu)
            }),
            Wire::SwitchVxlan => switch_vxlan::link(self, kind, pairs, options),
            Wire::Engine(..) => engine::find(self, kind, pairs, options),
            Wire::Veth => self.link_interfaces(kind, pairs, options, veth::wire),
            Wire::FilteredBridge(filter) => {
                let dir = self.dir()?;
                let wire = |segment: &Segment<'_>| rules::wire(segment, &dir, filter);
                self.link_interfaces(kind, pairs, options, wire)
            }
            Wire::Bridge => self.link_interfaces(kind, pairs, options, bridge::wire),
            Wire::Macvlan(mode) => {
                self.link_interfaces(kind, pairs, options, |segment| macvlan::wire(segment, mode))
            }
            Wire::MacvlanHairpin => {
                self.link_interfaces(kind, pairs, options, macvlan::wire_hairpin)
            }
            Wire::Macvtap => self.link_interfaces(kind, pairs, options, tap::wire_macvtap),
            Wire::Ipvlan(mode, flags) => {
                let wire = |segment: &Segment<'_>| ipvlan::wire(segment, mode, flags);
                self.link_interfaces(kind, pairs, options, wire)
            }
            Wire::Ovs(datapath) => self.link_by_switch(kind, pairs, options, |segment, dir| {
                ovs::start(segment, dir, datapath, options.switch_cpu)
            }),
            Wire::OvsVxlan(datapath) => {
                self.link_by_switch(kind, pairs, options, |segment, dir| {
                    ovs::start_on_hosts(segment, dir, datapath, options.switch_cpu)
                })
            }
            Wire::Sriov => sriov::link(self, kind, pairs, options),
            Wire::Hosts(uplink) => {
                self.link_interfaces(kind, pairs, options, |segment| hosts::wire(segment, uplink))
            }
            Wire::Tunnel(tunnel) => {
                self.link_interfaces(kind, pairs, options, |segment| tunnel::wire(segment, tunnel))
            }
            Wire::Netkit(mode) => {
                self.link_interfaces(kind, pairs, options, |segment| netkit::wire(segment, mode))
            }
            Wire::Xdp(wiring) => self.link_interfaces(kind, pairs, options, |segment| {
                xdp::wire(segment, wiring, options.has_programs)
            }),
        }
    }

    /// The kernel's counters of an end's interface, from the point of view of the program at the
    /// end.
    pub fn counters(&self, end: &End) -> Result<InterfaceCounters, LabError> {
        let counters = self.interface(end)?.counters;
        Ok(match end.attachment {
            // A TAP interface receives what the program writes, and sends what the program reads,
            // except frames that found the queue full.
            Attachment::Tap(_) => InterfaceCounters {
                rx_packets: counters.tx_packets + counters.tx_dropped,
                tx_packets: counters.rx_packets,
                tx_dropped: 0,
            },
            _ => counters,
        })
    }

    /// The kernel's counters of the interface by which frames leave the "host", if the link
    /// [isolates](LinkKind::isolates) its ends.
    pub fn parent_counters(&self, link: &Link) -> Result<Option<InterfaceCounters>, LabError> {
        let Some(parent) = &link.parent else { return Ok(None) };
        let doing = LabError::doing(format!("parent {parent}"));
        Ok(Some(self.host().netlink().interface(parent).map_err(doing)?.counters))
    }
}

/// Numbers the ends of links in order.
fn number_ports<'l>(links: impl IntoIterator<Item = &'l mut Link>) {
    let ends = links.into_iter().flat_map(|link| &mut link.ends);
    ends.enumerate().for_each(|(port, end)| end.port = port);
}

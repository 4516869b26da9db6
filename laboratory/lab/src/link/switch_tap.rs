//! Our switch on the "host", with a TAP interface in each container.

use std::fs::File;
use std::os::fd::AsFd;

use dray_netdev::{attach_tap, keep_tap};

use super::end::{End, Link, LinkOptions};
use super::kind::LinkKind;
use super::segment::Segment;
use crate::peer::{PeerSwitch, Taps, Wiring};
use crate::{ContainerId, Lab, LabError};

pub(super) fn link(
    lab: &mut Lab,
    (kind, wiring): (LinkKind, Wiring),
    pairs: &[[ContainerId; 2]],
    options: LinkOptions,
) -> Result<Vec<Link>, LabError> {
    let dir = lab.dir()?;
    let mut switch = None;
    let links = lab.link_interfaces(kind, pairs, options, |segment| {
        segment.ends().try_for_each(|end| segment.create_own_tap(end))?;
        let port = |end: &End| {
            let pid = segment.lab[end.container].pid().as_raw_nonzero();
            format!("tap:{}?netns=/proc/{pid}/ns/net", end.name())
        };
        let ports = segment.ends().map(port).collect();
        let taps = Taps { cpu: options.switch_cpu, wiring, ports };
        let (program, cancel) = (segment.lab.program(), segment.lab.cancel());
        switch = Some(PeerSwitch::start_taps(&dir, program, &taps, cancel)?);
        Ok(None)
    })?;
    switch.into_iter().for_each(|switch| lab.set_switch(switch));
    Ok(links)
}

impl Segment<'_> {
    /// Creates the TAP interface of an end, without a program that has it open.
    fn create_own_tap(&self, end: &End) -> Result<(), LabError> {
        let container = &self.lab[end.container];
        let doing = |what: &str| self.doing(&format!("{what} {}", end.name()));
        let created = container.namespace().enter(|| {
            let device = File::options().read(true).write(true).open("/dev/net/tun")?;
            attach_tap(device.as_fd(), end.name(), Default::default())?;
            keep_tap(device.as_fd())
        });
        created.map_err(doing("TAP interface"))?;
        let index = container.netlink().interface(end.name()).map_err(doing("interface"))?.index;
        container.netlink().set_mtu(index, self.mtu).map_err(doing("MTU of"))
    }
}

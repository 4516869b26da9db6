//! Our switch on the "host", with a TAP interface in each container.

use std::fs::File;
use std::os::fd::AsFd;

use dray_netdev::{attach_tap, keep_tap};

use super::end::End;
use super::segment::Segment;
use crate::LabError;
use crate::peer::{OwnPort, OwnSwitch, PeerDir, PeerSwitch, Wiring};

pub(super) fn start(
    segment: &Segment<'_>,
    dir: &PeerDir,
    wiring: Wiring,
    cpu: usize,
) -> Result<PeerSwitch, LabError> {
    segment.ends().try_for_each(|end| segment.create_own_tap(end))?;
    let port = |end: &End| {
        let pid = segment.lab[end.container].pid().as_raw_nonzero();
        let uri = format!("tap:{}?netns=/proc/{pid}/ns/net", end.name());
        OwnPort { uri, vlan: None, is_end: true }
    };
    let ports = segment.ends().map(port).collect();
    let own = OwnSwitch { cpu, wiring, sleeps: false, ports };
    PeerSwitch::start_own(dir, segment.lab.program(), &own, segment.lab.cancel())
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

//! AF_XDP sockets of ours.

use dray_bpf::Mode;
use dray_lab::End;
use dray_lab::link::EndKind;
use dray_lab::runtime::Capability::{Bpf, IpcLock, NetAdmin, NetRaw};
use dray_port::afxdp::AfxdpUri;
use dray_port::{PortUri, Wait};

use super::facts::Facts;

/// Options of an AF_XDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Afxdp {
    /// Mode of the XDP program; `None`: in the network driver if it supports that.
    pub(super) xdp: Option<Mode>,
    /// Time by which the interface's interrupts are deferred, in microseconds.
    pub(super) defer: Option<u16>,
    /// True if the kernel reports when it needs a wakeup call.
    pub(super) wakeup: bool,
}

impl Afxdp {
    /// Usual options.
    pub(super) const USUAL: Self = Self { xdp: None, defer: None, wakeup: true };

    pub(super) fn facts(self) -> Facts {
        let xdp = Some(self.xdp.unwrap_or(Mode::Native));
        let privileges = &[Bpf, IpcLock, NetAdmin, NetRaw];
        Facts { xdp, privileges, ..Facts::of(EndKind::Interface) }
    }

    pub(super) fn uri(self, end: &End, wait: Wait) -> Option<PortUri> {
        let Self { xdp, defer, wakeup } = self;
        let wait = if wait == Wait::Block { wait } else { Wait::Poll { pause_us: 0 } };
        let uri = AfxdpUri::new(end.interface()?);
        Some(PortUri::Afxdp(AfxdpUri { xdp, defer, wakeup, wait, ..uri }))
    }
}

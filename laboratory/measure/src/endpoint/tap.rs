//! Devices of TAP and macvtap interfaces.

use dray_lab::End;
use dray_lab::link::EndKind;
use dray_lab::runtime::Capability::{Mknod, NetAdmin};
use dray_port::tap::TapUri;
use dray_port::{PortUri, Wait};

use super::facts::Facts;

/// The device node is made in the container.
pub(super) const FACTS: Facts =
    Facts { privileges: &[Mknod, NetAdmin], ..Facts::of(EndKind::Machine) };

pub(super) fn uri(end: &End, wait: Wait) -> Option<PortUri> {
    Some(PortUri::Tap(TapUri { wait, ..TapUri::new(end.interface()?) }))
}

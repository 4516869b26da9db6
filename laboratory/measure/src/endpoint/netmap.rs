//! netmap's rings, opened by our port or by netmap's own programs.

use dray_lab::End;
use dray_lab::link::{EndKind, netmap_uri};
use dray_port::netmap::NetmapUri;
use dray_port::{PortUri, Wait};

use super::facts::Facts;

pub(super) const FACTS: Facts = Facts {
    engine_obstacle: Some("an engine's containers have no /dev/netmap"),
    ..Facts::of(EndKind::Netmap)
};

pub(super) fn uri(end: &End, wait: Wait) -> Option<PortUri> {
    let uri = netmap_uri(end.netmap()?).parse().expect("the lab's ports have short names");
    Some(match uri {
        PortUri::Netmap(uri) => PortUri::Netmap(NetmapUri { wait, ..uri }),
        other => other,
    })
}

//! Ports of netmap's kernel module: the programs at the ends make them when they open them, and
//! they disappear with the programs.

use std::path::Path;

use super::end::{Attachment, Link};
use crate::namespace::HOST_NETWORK;
use crate::peer::Wiring;
use crate::{ContainerId, Lab, LabError};

/// The device of netmap's module.
pub(crate) const DEVICE: &str = "/dev/netmap";

/// How to get the module.
pub(crate) const REMEDY: &str = "load its kernel module (modprobe netmap); Debian has no package, \
                                 docs/netmap.md says how to build it";

/// Returns the URI by which a program in a container opens the port `name` of the "host".
pub fn netmap_uri(name: &str) -> String {
    // Pipes of one memory region pass buffers on; the ports of a VALE switch keep theirs.
    let memory = if name.starts_with("vale") { "" } else { "memory=1&" };
    format!("netmap:{name}?{memory}netns={HOST_NETWORK}")
}

/// Returns true if netmap's module is loaded.
pub fn has_netmap() -> bool {
    Path::new(DEVICE).exists()
}

/// Names the ports for each link. They are in the network namespace of the "host": VALE switches
/// and pipes of one namespace do not exist in others.
pub(super) fn ports(
    lab: &mut Lab,
    wiring: Wiring,
    pairs: &[[ContainerId; 2]],
) -> Result<Vec<Link>, LabError> {
    if !has_netmap() {
        let what = format!("netmap, no {DEVICE}");
        return Err(LabError::NotInKernel { what, remedy: REMEDY.to_owned() });
    }
    let mut switch = None;
    let link = |&containers| {
        let ids = lab.next_ends();
        let number = ids[0].link();
        let names = match wiring {
            Wiring::Learning => {
                let switch = switch.get_or_insert(number);
                ids.map(|id| format!("vale{switch}:{id}"))
            }
            // No interface has the part before the brace, so netmap creates a pipe.
            Wiring::Pairs => ['{', '}'].map(|side| format!("pipe{number}{side}1")),
        };
        Link::new(containers, names.map(Attachment::Netmap), ids, false)
    };
    Ok(pairs.iter().map(link).collect())
}

//! XDP programs on the "host" that forward frames among veth pairs to the containers.

use std::io;
use std::time::Duration;

use dray_bpf::{Mode, Pass, Redirect, XdpError};

use super::end::End;
use super::segment::{KeepAlive, Segment};
use crate::LabError;
use crate::peer::Wiring;

const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];
/// Time after which a silent station is forgotten.
const AGE: Duration = Duration::from_secs(300);

/// Programs that forward frames while they are held.
struct Programs {
    _redirects: Vec<Redirect>,
    _passes: Vec<Pass>,
}

/// Wires a segment. `has_programs` is true if the programs at the ends attach XDP programs of their
/// own.
pub(super) fn wire(
    segment: &Segment<'_>,
    wiring: Wiring,
    has_programs: bool,
) -> Result<KeepAlive, LabError> {
    let host = segment.host();
    let ports = segment.ends().map(|end| segment.create_port(host, end));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    let redirects = host.namespace.enter(|| redirect(wiring, &ports).map_err(io::Error::other));
    segment.ends().try_for_each(|end| segment.compute_checksums(end))?;
    let ends = segment.ends().filter(|_| !has_programs);
    let passes = ends.map(|end| pass(segment, end)).collect::<io::Result<_>>();
    let programs = Programs {
        _redirects: redirects.map_err(segment.doing("XDP program"))?,
        _passes: passes.map_err(segment.doing("XDP program in a container"))?,
    };
    segment.set_up()?;
    segment.ends().try_for_each(|end| segment.wait_for_port(host, end))?;
    Ok(Some(Box::new(programs)))
}

fn redirect(wiring: Wiring, ports: &[u32]) -> Result<Vec<Redirect>, XdpError> {
    match wiring {
        Wiring::Pairs => {
            let (pairs, _) = ports.as_chunks::<2>();
            pairs.iter().map(|&pair| Redirect::pair(pair, &MODES)).collect()
        }
        Wiring::Learning => Ok(vec![Redirect::learning(ports, &MODES, AGE)?]),
    }
}

impl Segment<'_> {
    /// Makes a container compute checksums in software: a veth has no hardware for offloaded
    /// checksums, and they are lost when frames leave the kernel's own paths.
    pub(super) fn compute_checksums(&self, end: &End) -> Result<(), LabError> {
        let namespace = self.lab[end.container].namespace();
        let done =
            namespace.enter(|| dray_netdev::Interface::find(end.name())?.compute_checksums());
        done.map_err(self.doing("checksums"))
    }
}

fn pass(segment: &Segment<'_>, end: &End) -> io::Result<Pass> {
    let container = &segment.lab[end.container];
    let index = container.netlink().interface(end.name())?.index;
    container.namespace().enter(|| Pass::attach(index).map_err(io::Error::other))
}

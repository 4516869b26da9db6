//! Memory that containers share with each other or with a user-space switch.

use std::path::PathBuf;

use super::address::EndId;
use super::end::{Attachment, Link, LinkOptions};
use crate::peer::{PeerDir, PeerPort, Protocol, SwitchKind, Wiring};
use crate::{ContainerId, Lab, LabError};

/// Makes links in which the first end shares its memory with the second.
pub(super) fn direct(lab: &mut Lab, pairs: &[[ContainerId; 2]]) -> Result<Vec<Link>, LabError> {
    let dir = lab.dir()?;
    let link = |&containers| {
        let ids = lab.next_ends();
        let socket = socket(&dir, ids[0]);
        let attachments = [Attachment::Driver(socket.clone()), Attachment::Device(socket)];
        Link::new(containers, attachments, ids, false)
    };
    Ok(pairs.iter().map(link).collect())
}

/// Starts a switch with a port for each end.
pub(super) fn switch(
    lab: &mut Lab,
    (kind, wiring, protocol): (SwitchKind, Wiring, Protocol),
    segments: &[Vec<[ContainerId; 2]>],
    options: LinkOptions,
) -> Result<Vec<Vec<Link>>, LabError> {
    let dir = lab.dir()?;
    let mut ports = Vec::new();
    let mut link = |segment, containers| {
        let ids = lab.next_ends();
        let pair = ids.map(|id| socket(&dir, id));
        ports.extend(pair.iter().map(|socket| PeerPort {
            protocol,
            segment,
            ..PeerPort::listening(socket)
        }));
        let attachment = match protocol {
            Protocol::VhostUser => Attachment::Driver,
            Protocol::Memif => Attachment::Memif,
        };
        Link::new(containers, pair.map(attachment), ids, false)
    };
    let links = (1..).zip(segments).map(|(segment, pairs)| {
        pairs.iter().map(|&containers| link(segment, containers)).collect()
    });
    let links = links.collect();
    lab.start_switch(kind, wiring, options, ports)?;
    Ok(links)
}

pub(super) fn socket(dir: &PeerDir, id: EndId) -> PathBuf {
    dir.sockets().join(format!("link{id}"))
}

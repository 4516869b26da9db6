//! Learning mode: a frame goes to the port where its destination was last heard of, or to all ports
//! of its VLAN.

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use dray_port::{BATCH_MAX, Batch, FRAME_LIMIT, Frame};
use dray_wire::MacAddr;

use super::port::{Egress, OpenPort, bytes};
use super::worker::Tally;
use super::{Setting, View};
use crate::config::Vlan;
use crate::counters::DropReason;
use crate::table::Learned;

/// Destination, source and type.
const ETHERNET_LEN: usize = 14;
/// The type that says that a VLAN tag follows (IEEE 802.1Q).
const TAG: [u8; 2] = [0x81, 0x00];
const TAG_LEN: usize = 4;
/// Frames whose tag is changed in one go.
const REWRITTEN_MAX: usize = 32;

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    To(u16),
    Flood,
    Drop(DropReason),
}

/// A worker's room for learning mode.
pub(super) struct Learner {
    /// By port: which frames of the batch go there.
    lists: Vec<ArrayVec<u8, BATCH_MAX>>,
    /// Frames that leave with another tag than they came with are put together here.
    rewritten: Box<[u8]>,
}

/// What a frame's first bytes say.
struct Heading {
    vlan: u16,
    tagged: bool,
}

impl Learner {
    pub(super) fn new() -> Self {
        Self { lists: Vec::new(), rewritten: vec![0; REWRITTEN_MAX * FRAME_LIMIT].into() }
    }

    /// Moves `frames`, received on port `from`.
    pub(super) fn forward(
        &mut self,
        view: &View,
        setting: &Setting,
        worker: usize,
        from: &OpenPort,
        frames: &[Frame<'_>],
        tally: &mut Tally,
    ) {
        let now = setting.now.load(Ordering::Relaxed);
        tally.received(from.index, frames.len(), bytes(frames));
        // A plain frame between plain ports needs no look at its tag and no change.
        let plain = from.config.vlan == Vlan::Unaware;
        let mut headings = ArrayVec::<Heading, BATCH_MAX>::new();
        let mut ways = ArrayVec::<Way, BATCH_MAX>::new();
        // Frames often come in trains from one station to another.
        let (mut last_head, mut last_way) = ([0; 12], Way::Drop(DropReason::TooShort));
        let (mut last_vlan, mut same) = (u16::MAX, true);
        for frame in dray_port::ahead(frames) {
            let Some(head) = frame.first::<ETHERNET_LEN>() else {
                ways.push(Way::Drop(DropReason::TooShort));
                headings.push(Heading { vlan: 0, tagged: false });
                same = false;
                continue;
            };
            let heading = match plain {
                true => Ok(Heading { vlan: 0, tagged: false }),
                false => classify(&from.config.vlan, frame, head),
            };
            let (heading, way) = match heading {
                Ok(heading) if head[..12] == last_head && heading.vlan == last_vlan => {
                    (heading, last_way)
                }
                Ok(heading) => {
                    let way = way(view, setting, now, from, heading.vlan, head, tally);
                    last_head.copy_from_slice(&head[..12]);
                    last_vlan = heading.vlan;
                    last_way = way;
                    (heading, way)
                }
                Err(reason) => (Heading { vlan: 0, tagged: false }, Way::Drop(reason)),
            };
            same &= ways.first().is_none_or(|first| *first == way);
            ways.push(way);
            headings.push(heading);
        }
        // All to one place, as they are: the list of frames is the one that was lent.
        if same
            && plain
            && let Some(Way::To(to)) = ways.first()
            && let Some(to) = view.port(*to)
        {
            deliver(to, worker, frames, tally);
            return;
        }
        self.sort(view, from, &headings, &ways, tally);
        for to in view.all() {
            self.emit(to, worker, frames, &headings, tally);
        }
    }

    /// Puts each frame on the lists of the ports that it goes to.
    fn sort(
        &mut self,
        view: &View,
        from: &OpenPort,
        headings: &[Heading],
        ways: &[Way],
        tally: &mut Tally,
    ) {
        if self.lists.len() < view.ports.len() {
            self.lists.resize_with(view.ports.len(), ArrayVec::new);
        }
        for (index, (way, heading)) in ways.iter().zip(headings).enumerate() {
            match way {
                Way::To(to) => self.lists[usize::from(*to)].push(index as u8),
                Way::Flood => {
                    let mut nobody = true;
                    for to in view.all().filter(|to| may_flood(from, to, heading.vlan)) {
                        self.lists[usize::from(to.index)].push(index as u8);
                        nobody = false;
                    }
                    if nobody {
                        tally.of(from.index).drops.add(DropReason::NoReceiver, 1);
                    }
                }
                Way::Drop(reason) => tally.of(from.index).drops.add(*reason, 1),
            }
        }
    }

    /// Transmits what is on the list of `to`.
    fn emit(
        &mut self,
        to: &OpenPort,
        worker: usize,
        frames: &[Frame<'_>],
        headings: &[Heading],
        tally: &mut Tally,
    ) {
        let list = std::mem::take(&mut self.lists[usize::from(to.index)]);
        let mut rest = list.as_slice();
        while !rest.is_empty() {
            let mut room = self.rewritten.chunks_exact_mut(FRAME_LIMIT);
            let mut batch = Batch::new();
            let mut done = 0;
            for index in rest.iter().map(|index| usize::from(*index)) {
                let (frame, heading) = (frames[index], &headings[index]);
                let egress = to.egress(heading.vlan).unwrap_or(Egress::AsItIs);
                let retagged = match (heading.tagged, egress) {
                    (true, Egress::Untagged) => rewrite(&frame, true, None, &mut room),
                    // A tag may be of VLAN 0, and what its peer makes of it after it was read must
                    // not lead into another VLAN.
                    (tagged, Egress::Tagged) => {
                        rewrite(&frame, tagged, Some(heading.vlan), &mut room)
                    }
                    _ => Some(frame),
                };
                let Some(frame) = retagged else { break };
                batch.push(frame);
                done += 1;
            }
            deliver(to, worker, &batch, tally);
            rest = &rest[done..];
        }
    }
}

/// Transmits `frames`; a full receiver drops.
#[inline]
fn deliver(to: &OpenPort, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) {
    let counters = tally.of(to.index);
    let taken = to.transmit(worker, frames, counters);
    if taken < frames.len() {
        to.refused(worker, frames.len() - taken, counters);
    }
}

/// Learns where the source is, and finds where the destination is.
#[inline]
fn way(
    view: &View,
    setting: &Setting,
    now: u32,
    from: &OpenPort,
    vlan: u16,
    head: [u8; ETHERNET_LEN],
    tally: &mut Tally,
) -> Way {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = head;
    let (destination, source) =
        (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
    if setting.table.learn(vlan, source, from.index, now) == Learned::Refused {
        tally.of(from.index).addresses_refused += 1;
    }
    let group = d0 & 1 != 0;
    match if group { None } else { setting.table.lookup(vlan, destination) } {
        Some(to) if to == from.index => Way::Drop(DropReason::Hairpin),
        Some(to) => match view.port(to) {
            Some(port) if isolated(from, port) => Way::Drop(DropReason::Isolated),
            Some(port) if port.egress(vlan).is_none() => Way::Drop(DropReason::VlanNotAllowed),
            Some(_) => Way::To(to),
            // Removed since, and about to be forgotten.
            None => Way::Flood,
        },
        None => Way::Flood,
    }
}

fn may_flood(from: &OpenPort, to: &OpenPort, vlan: u16) -> bool {
    to.index != from.index && to.egress(vlan).is_some() && !isolated(from, to)
}

fn isolated(from: &OpenPort, to: &OpenPort) -> bool {
    from.config.group.is_some() && from.config.group == to.config.group
}

/// The VLAN of a frame that came in on a port with `vlan`.
fn classify(
    vlan: &Vlan,
    frame: &Frame<'_>,
    head: [u8; ETHERNET_LEN],
) -> Result<Heading, DropReason> {
    let tagged = head[12..] == TAG;
    // Tag 0 marks a priority only; the frame belongs where an untagged one would.
    let tag = match (tagged, frame.first::<{ ETHERNET_LEN + TAG_LEN }>()) {
        (false, _) => 0,
        (true, Some(bytes)) => u16::from_be_bytes([bytes[14], bytes[15]]) & 0xfff,
        (true, None) => return Err(DropReason::TooShort),
    };
    let vlan = match (vlan, tag) {
        (Vlan::Unaware, _) => 0,
        (Vlan::Access(access), 0) => u16::from(*access),
        (Vlan::Trunk { native: Some(native), .. }, 0) => u16::from(*native),
        (Vlan::Trunk { tagged, .. }, tag) if tagged.iter().any(|vlan| u16::from(*vlan) == tag) => {
            tag
        }
        _ => return Err(DropReason::VlanNotAllowed),
    };
    Ok(Heading { vlan, tagged })
}

/// `frame`, which is `tagged` or not, with the tag of `vlan`, or without any; `None` where there is
/// no room left in this batch. A tag's priority is kept.
fn rewrite<'r>(
    frame: &Frame<'_>,
    tagged: bool,
    vlan: Option<u16>,
    room: &mut std::slice::ChunksExactMut<'r, u8>,
) -> Option<Frame<'r>> {
    let to = room.next()?;
    let len = frame.copy_into(to);
    let addresses = ETHERNET_LEN - 2;
    let len = match vlan {
        Some(vlan) if tagged => {
            let priority = u16::from_be_bytes([to[addresses + 2], to[addresses + 3]]) & 0xf000;
            to[addresses..addresses + 2].copy_from_slice(&TAG);
            to[addresses + 2..addresses + TAG_LEN]
                .copy_from_slice(&(priority | vlan).to_be_bytes());
            len
        }
        Some(vlan) if len + TAG_LEN <= to.len() => {
            to.copy_within(addresses..len, addresses + TAG_LEN);
            to[addresses..addresses + 2].copy_from_slice(&TAG);
            to[addresses + 2..addresses + TAG_LEN].copy_from_slice(&vlan.to_be_bytes());
            len + TAG_LEN
        }
        // Nothing that long comes in untagged; cut, it is at least not another station's.
        Some(_) => len,
        None => {
            to.copy_within(addresses + TAG_LEN..len, addresses);
            len - TAG_LEN
        }
    };
    Some(Frame::from(&to[..len]))
}

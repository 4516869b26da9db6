//! Learning mode: a frame goes to the port where its destination was last seen, or to all ports of
//! its VLAN.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use dray_port::{BATCH_MAX, Batch, Frame, clock};
use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet};

use super::head::Head;
use super::port::OpenPort;
use super::tally::Tally;
use super::{Setting, View};
use crate::counters::DropReason;
use crate::table::Learned;

/// Destination of a frame in the switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    To(u16),
    Flood,
    /// To all ports that forward reserved addresses.
    FloodReserved,
    Drop(DropReason),
}

/// A worker's buffers for learning mode.
pub(super) struct Learner {
    /// By port: the frames of the batch that go there.
    lists: Vec<ArrayVec<u8, BATCH_MAX>>,
    /// By frame of the batch: the head that it leaves with. Not used for frames that leave
    /// unchanged.
    heads: Box<[Head]>,
}

impl Learner {
    pub(super) fn new() -> Self {
        Self { lists: Vec::new(), heads: vec![Head::EMPTY; BATCH_MAX].into() }
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
        // Between ports without VLANs, and where no address is pinned, the switch guarantees
        // nothing about a frame's head: no copy is needed.
        let plain = !from.vlans.is_aware() && view.pins.is_none();
        let mut ways = ArrayVec::<Way, BATCH_MAX>::new();
        // Frames often come in trains from one station to another.
        let (mut last_head, mut last_way) = ([0; 12], Way::Drop(DropReason::TooShort));
        let (mut last_vlan, mut same) = (u16::MAX, true);
        for (frame, head) in dray_port::ahead(frames).zip(&mut self.heads) {
            let Some(first) = frame.first::<ETHERNET_LEN>() else {
                ways.push(Way::Drop(DropReason::TooShort));
                same = false;
                continue;
            };
            let vlan = match plain {
                true => Ok(0),
                false => Head::read(&from.vlans, frame, first).map(|read| {
                    *head = read;
                    read.vlan
                }),
            };
            let way = match vlan {
                Ok(vlan) if first[..12] == last_head && vlan == last_vlan => last_way,
                Ok(vlan) => {
                    last_way = way(view, setting, now, from, vlan, first, tally);
                    last_head.copy_from_slice(&first[..12]);
                    last_vlan = vlan;
                    last_way
                }
                Err(reason) => Way::Drop(reason),
            };
            same &= ways.first().is_none_or(|first| *first == way);
            ways.push(way);
        }
        // All frames go to one port unchanged: pass on the received batch itself.
        if same
            && plain
            && let Some(Way::To(to)) = ways.first()
            && let Some(to) = view.port(*to)
        {
            deliver(to, worker, frames, tally);
            return;
        }
        self.sort(view, from, plain, (frames, &ways), tally);
        for to in view.all() {
            self.emit(to, worker, plain, frames, tally);
        }
    }

    /// Puts each frame on the lists of the ports that it goes to.
    fn sort(
        &mut self,
        view: &View,
        from: &OpenPort,
        plain: bool,
        (frames, ways): (&[Frame<'_>], &[Way]),
        tally: &mut Tally,
    ) {
        if self.lists.len() < view.ports.len() {
            self.lists.resize_with(view.ports.len(), ArrayVec::new);
        }
        let mut floods = match &from.floods {
            None => BATCH_MAX as u64,
            Some(storm) => {
                let floods = |way: &&Way| matches!(way, Way::Flood | Way::FloodReserved);
                let wanted = ways.iter().filter(floods).count();
                if wanted == 0 { 0 } else { storm.take(wanted as u64, clock::ticks()) }
            }
        };
        for (index, (way, head)) in ways.iter().zip(&self.heads).enumerate() {
            let frame = &frames[index..=index];
            match way {
                Way::To(to) => self.lists[usize::from(*to)].push(index as u8),
                Way::Flood | Way::FloodReserved if floods == 0 => {
                    tally.dropped(from, DropReason::Storm, frame);
                }
                Way::Flood | Way::FloodReserved => {
                    floods -= 1;
                    let vlan = if plain { 0 } else { head.vlan };
                    let mut nobody = true;
                    let may = |to: &&Arc<OpenPort>| {
                        may_flood(from, to, vlan)
                            && (*way == Way::Flood || to.config.forwards_reserved)
                    };
                    for to in view.all().filter(may) {
                        self.lists[usize::from(to.index)].push(index as u8);
                        nobody = false;
                    }
                    if nobody {
                        tally.dropped(from, DropReason::NoReceiver, frame);
                    }
                }
                Way::Drop(reason) => tally.dropped(from, *reason, frame),
            }
        }
    }

    /// Transmits the frames on the list of `to`.
    fn emit(
        &mut self,
        to: &OpenPort,
        worker: usize,
        plain: bool,
        frames: &[Frame<'_>],
        tally: &mut Tally,
    ) {
        let list = &mut self.lists[usize::from(to.index)];
        if list.is_empty() {
            return;
        }
        let mut batch = Batch::new();
        for index in list.drain(..).map(usize::from) {
            if plain {
                batch.push(frames[index]);
                continue;
            }
            let head = &self.heads[index];
            let egress = to.vlans.egress(head.vlan).ok_or(DropReason::VlanNotAllowed);
            match egress.and_then(|egress| head.leave(&frames[index], egress)) {
                Ok(frame) => batch.push(frame),
                Err(reason) => tally.dropped(to, reason, &frames[index..=index]),
            }
        }
        deliver(to, worker, &batch, tally);
    }
}

/// Transmits `frames`; drops those that a full receiver does not take.
#[inline]
fn deliver(to: &OpenPort, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) {
    let taken = to.transmit(worker, frames, tally);
    if taken < frames.len() {
        to.refused(worker, &frames[taken..], tally);
    }
}

/// Learns the port of the source and returns the way to the destination.
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
    let Ethernet { dst: destination, src: source, .. } = Ethernet::read(&head);
    if !source.is_station() {
        return Way::Drop(DropReason::InvalidSource);
    }
    match view.owner(vlan, source) {
        Some(owner) if owner.index != from.index => return Way::Drop(DropReason::Spoofed),
        // Pinned: nothing to learn.
        Some(_) => {}
        None if from.spoof_check => return Way::Drop(DropReason::Spoofed),
        None => {
            let may = || from.learns.as_ref().is_none_or(|rate| rate.take(1, clock::ticks()) == 1);
            match setting.table.learn_if(vlan, source, from.index, now, may) {
                Learned::Refused => tally.of(from.index).addresses_refused += 1,
                Learned::Limited => tally.of(from.index).addresses_limited += 1,
                Learned::Nothing | Learned::Added | Learned::Moved => {}
            }
        }
    }
    if destination.is_group() {
        return match (is_reserved(destination), from.config.forwards_reserved) {
            (false, _) => Way::Flood,
            (true, true) => Way::FloodReserved,
            (true, false) => Way::Drop(DropReason::Reserved),
        };
    }
    let pinned = view.owner(vlan, destination).map(|owner| owner.index);
    match pinned.or_else(|| setting.table.lookup(vlan, destination)) {
        Some(to) if to == from.index => Way::Drop(DropReason::Hairpin),
        Some(to) => match view.port(to) {
            Some(port) if isolated(from, port) => Way::Drop(DropReason::Isolated),
            // The station's port has other VLANs meanwhile.
            Some(port) if port.vlans.egress(vlan).is_none() => {
                Way::Drop(DropReason::VlanNotAllowed)
            }
            Some(_) => Way::To(to),
            // The port was removed meanwhile, and its stations are about to be forgotten.
            None => Way::Flood,
        },
        None => Way::Flood,
    }
}

/// Returns true if a bridge does not relay frames to this address: those of protocols between neighbours,
/// such as STP, LACP, 802.1X and LLDP (IEEE 802.1Q-2018, section 8.6.3 and table 8-1).
fn is_reserved(address: MacAddr) -> bool {
    matches!(address.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
}

fn may_flood(from: &OpenPort, to: &OpenPort, vlan: u16) -> bool {
    to.index != from.index
        && to.config.mirror.is_empty()
        && to.vlans.egress(vlan).is_some()
        && !isolated(from, to)
}

fn isolated(from: &OpenPort, to: &OpenPort) -> bool {
    from.config.group.is_some() && from.config.group == to.config.group
}

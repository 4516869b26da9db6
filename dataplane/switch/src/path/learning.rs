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
use super::setting::Setting;
use super::tally::Tally;
use super::view::View;
use crate::counters::DropReason;
use crate::table::Learned;

/// Decision on where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    To(u16),
    Flood,
    /// To all ports that forward reserved addresses.
    FloodReserved,
    Drop(DropReason),
}

impl Decision {
    fn floods(self) -> bool {
        matches!(self, Self::Flood | Self::FloodReserved)
    }
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
        from: &OpenPort,
        frames: &[Frame<'_>],
        tally: &mut Tally,
    ) {
        let now = setting.now.load(Ordering::Relaxed);
        // Between ports without VLANs, and where no address is pinned, the switch guarantees
        // nothing about a frame's head: no copy is needed.
        let plain = !from.vlans.is_aware() && view.pins.is_none();
        let mut decisions = ArrayVec::<Decision, BATCH_MAX>::new();
        // Frames often come in trains from one station to another.
        let (mut last_head, mut last_decision) = ([0; 12], Decision::Drop(DropReason::TooShort));
        let (mut last_vlan, mut same) = (u16::MAX, true);
        for (frame, head) in dray_port::ahead(frames).zip(&mut self.heads) {
            let Some(first) = frame.first::<ETHERNET_LEN>() else {
                decisions.push(Decision::Drop(DropReason::TooShort));
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
            let decision = match vlan {
                Ok(vlan) if first[..12] == last_head && vlan == last_vlan => last_decision,
                Ok(vlan) => {
                    last_decision = decide(view, setting, now, from, vlan, first, tally);
                    last_head.copy_from_slice(&first[..12]);
                    last_vlan = vlan;
                    last_decision
                }
                Err(reason) => Decision::Drop(reason),
            };
            same &= decisions.first().is_none_or(|first| *first == decision);
            decisions.push(decision);
        }
        // All frames go to one port unchanged: pass on the received batch itself.
        if same
            && plain
            && let Some(Decision::To(to)) = decisions.first()
            && let Some(to) = view.port(*to)
        {
            tally.deliver(to, frames);
            return;
        }
        self.sort(view, from, plain, (frames, &decisions), tally);
        for to in view.all() {
            self.emit(to, plain, frames, tally);
        }
    }

    /// Puts each frame on the lists of the ports that it goes to.
    fn sort(
        &mut self,
        view: &View,
        from: &OpenPort,
        plain: bool,
        (frames, decisions): (&[Frame<'_>], &[Decision]),
        tally: &mut Tally,
    ) {
        if self.lists.len() < view.ports.len() {
            self.lists.resize_with(view.ports.len(), ArrayVec::new);
        }
        let mut floods = match &from.floods {
            None => BATCH_MAX as u64,
            Some(storm) => {
                let wanted = decisions.iter().filter(|decision| decision.floods()).count();
                if wanted == 0 { 0 } else { storm.take(wanted as u64, clock::ticks()) }
            }
        };
        for (index, (decision, head)) in decisions.iter().zip(&self.heads).enumerate() {
            let frame = &frames[index..=index];
            match decision {
                Decision::To(to) => self.lists[usize::from(*to)].push(index as u8),
                Decision::Flood | Decision::FloodReserved if floods == 0 => {
                    tally.dropped(from, DropReason::Storm, frame);
                }
                Decision::Flood | Decision::FloodReserved => {
                    floods -= 1;
                    let vlan = if plain { 0 } else { head.vlan };
                    let mut nobody = true;
                    let may = |to: &&Arc<OpenPort>| {
                        may_flood(from, to, vlan)
                            && (*decision == Decision::Flood || to.config.forwards_reserved)
                    };
                    for to in view.all().filter(may) {
                        self.lists[usize::from(to.index)].push(index as u8);
                        nobody = false;
                    }
                    if nobody {
                        tally.dropped(from, DropReason::NoReceiver, frame);
                    }
                }
                Decision::Drop(reason) => tally.dropped(from, *reason, frame),
            }
        }
    }

    /// Transmits the frames on the list of `to`.
    fn emit(&mut self, to: &OpenPort, plain: bool, frames: &[Frame<'_>], tally: &mut Tally) {
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
        tally.deliver(to, &batch);
    }
}

/// Learns the port of the source and decides where the frame goes.
#[inline]
fn decide(
    view: &View,
    setting: &Setting,
    now: u32,
    from: &OpenPort,
    vlan: u16,
    head: [u8; ETHERNET_LEN],
    tally: &mut Tally,
) -> Decision {
    let Ethernet { dst: destination, src: source, .. } = Ethernet::read(&head);
    if !source.is_station() {
        return Decision::Drop(DropReason::InvalidSource);
    }
    match view.owner(vlan, source) {
        Some(owner) if owner.index != from.index => return Decision::Drop(DropReason::Spoofed),
        // Pinned: nothing to learn.
        Some(_) => {}
        None if from.spoof_check => return Decision::Drop(DropReason::Spoofed),
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
            (false, _) => Decision::Flood,
            (true, true) => Decision::FloodReserved,
            (true, false) => Decision::Drop(DropReason::Reserved),
        };
    }
    let pinned = view.owner(vlan, destination).map(|owner| owner.index);
    match pinned.or_else(|| setting.table.lookup(vlan, destination)) {
        Some(to) if to == from.index => Decision::Drop(DropReason::Hairpin),
        Some(to) => match view.port(to) {
            Some(port) if isolated(from, port) => Decision::Drop(DropReason::Isolated),
            // The station's port has other VLANs meanwhile.
            Some(port) if port.vlans.egress(vlan).is_none() => {
                Decision::Drop(DropReason::VlanNotAllowed)
            }
            Some(_) => Decision::To(to),
            // The port was removed meanwhile, and its stations are about to be removed.
            None => Decision::Flood,
        },
        None => Decision::Flood,
    }
}

/// Returns true if a bridge does not relay frames to this address: those of protocols between
/// neighbours, such as STP, LACP, 802.1X and LLDP (IEEE 802.1Q-2018, section 8.6.3 and table 8-1).
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

//! The switch against a model. The input bytes determine the ports, the frames that they send, and
//! which bytes of the frames change while the switch is at work.
//!
//! The model knows no batches, no memory and no speed. Each port must transmit exactly the frames
//! that the model says, in order. Independently of the model, a frame that leaves must be in a VLAN
//! of the port that it came from, must not have a source address pinned elsewhere, and must not
//! stay within an isolation group.

use std::collections::BTreeMap;

use dray_switch::config::{Flow, VlanId};
use dray_switch::{Mode, PortConfig, SwitchConfig};
use dray_wire::MacAddr;

use crate::inline::{Inline, Sent};

const FRAME_MAX: usize = 9018;
const TAG: [u8; 2] = [0x81, 0x00];
const SERVICE_TAG: [u8; 2] = [0x88, 0xa8];
const VLANS: [i64; 3] = [10, 20, 30];

/// Source of decisions; when the bytes are used up, all further ones are 0.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        (*first).into()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() % of.len()]
    }
}

/// A few addresses, so that they collide; the last ones are not those of stations.
fn address(bytes: &mut Bytes<'_>) -> [u8; 6] {
    match bytes.next() % 10 {
        7 => [0xff; 6],
        8 => [1, 0, 0x5e, 0, 0, 1],
        9 => [0; 6],
        id => MacAddr::local(1 + id as u64).0,
    }
}

fn port(bytes: &mut Bytes<'_>, name: &str, taken: &mut Vec<MacAddr>) -> PortConfig {
    let mut port: PortConfig = format!("{name}=null:").parse().unwrap();
    let vlan = |number| VlanId::try_from(number).unwrap();
    port.vlan = match bytes.next() % 4 {
        0 => dray_switch::config::Vlan::Unaware,
        1 => dray_switch::config::Vlan::Access(vlan(bytes.one(&VLANS))),
        more => {
            let native = (more == 3).then(|| vlan(bytes.one(&VLANS)));
            let some = bytes.next();
            let tagged = VLANS.iter().enumerate().filter(|(at, _)| some >> at & 1 != 0);
            let tagged = tagged.map(|(_, number)| vlan(*number));
            dray_switch::config::Vlan::Trunk {
                tagged: tagged.filter(|vlan| Some(*vlan) != native).collect(),
                native,
            }
        }
    };
    port.group = match bytes.next() % 4 {
        2 => Some("g".parse().unwrap()),
        3 => Some("h".parse().unwrap()),
        _ => None,
    };
    let pins = bytes.next();
    for _ in 0..(pins % 8).saturating_sub(5) {
        let mac = MacAddr::local(1 + bytes.next() as u64 % 7);
        if !taken.contains(&mac) {
            taken.push(mac);
            port.macs.push(mac);
        }
    }
    port.spoof_check = !port.macs.is_empty() && pins & 8 == 0;
    port
}

fn config(bytes: &mut Bytes<'_>) -> SwitchConfig {
    let first = bytes.next();
    let mode = if first % 8 == 7 { Mode::Patch } else { Mode::Learning };
    let count = 2 + first / 8 % 5;
    let mut taken = Vec::new();
    let ports = (0..count).map(|number| {
        let name = format!("p{number}");
        match mode {
            Mode::Patch => format!("{name}=null:").parse().unwrap(),
            Mode::Learning => port(bytes, &name, &mut taken),
        }
    });
    let ports = ports.collect();
    let flow = Flow::Drop;
    let control = "/tmp/unused".parse().expect("a path");
    SwitchConfig { mode, flow, ports, control, table_size: 8192, ..SwitchConfig::default() }
}

fn frame(bytes: &mut Bytes<'_>) -> Sent {
    let mut frame = [address(bytes), address(bytes)].concat();
    let shape = bytes.next();
    for _ in 0..shape % 4 {
        frame.extend(bytes.one(&[TAG, TAG, SERVICE_TAG]));
        let vlan = bytes.one(&[0, 10, 20, 30, 40, 4095, 0xa000, 0x700a, 0x1014]);
        frame.extend(u16::to_be_bytes(vlan));
    }
    frame.extend(bytes.one(&[[8, 0], [0x88, 0xb5], TAG, SERVICE_TAG]));
    let len = match shape / 4 % 8 {
        0 => bytes.next() % 24,
        1 => FRAME_MAX - bytes.next() % 12,
        _ => 60 + bytes.next(),
    };
    frame.extend((frame.len()..len).map(|at| at as u8));
    frame.truncate(len);
    let later = match shape / 32 % 4 {
        0 | 1 => None,
        2 => Some(frame.clone()),
        _ => {
            let mut later = frame.clone();
            for _ in 0..1 + bytes.next() % 8 {
                let (at, byte) =
                    (bytes.next() % 24, bytes.one(&[0x81, 0, 0x88, 0xa8, 10, 20, 2, 1]));
                if let Some(place) = later.get_mut(at) {
                    *place = byte;
                }
            }
            Some(later)
        }
    };
    Sent { bytes: frame, later }
}

struct Model<'c> {
    config: &'c SwitchConfig,
    table: BTreeMap<(u16, [u8; 6]), usize>,
    dropped: u64,
}

impl Model<'_> {
    /// Returns the untagged VLAN of a port, and its tagged VLANs.
    fn vlans(&self, port: usize) -> (Option<u16>, Vec<u16>) {
        match &self.config.ports[port].vlan {
            dray_switch::config::Vlan::Unaware => (None, Vec::new()),
            dray_switch::config::Vlan::Access(vlan) => (Some((*vlan).into()), Vec::new()),
            dray_switch::config::Vlan::Trunk { tagged, native } => {
                (native.map(u16::from), tagged.iter().map(|vlan| u16::from(*vlan)).collect())
            }
        }
    }

    fn is_aware(&self, port: usize) -> bool {
        self.config.ports[port].vlan != dray_switch::config::Vlan::Unaware
    }

    fn is_member(&self, port: usize, vlan: u16) -> bool {
        let (untagged, tagged) = self.vlans(port);
        match self.is_aware(port) {
            true => untagged == Some(vlan) || tagged.contains(&vlan),
            false => vlan == 0,
        }
    }

    fn owner(&self, vlan: u16, mac: [u8; 6]) -> Option<usize> {
        let is_its = |port: &usize| self.config.ports[*port].macs.contains(&MacAddr(mac));
        (0..self.config.ports.len()).filter(is_its).find(|port| self.is_member(*port, vlan))
    }

    /// Returns true if an address is pinned in some VLAN; a trunk may be in none.
    fn has_pins(&self) -> bool {
        (0..self.config.ports.len()).any(|port| {
            let (untagged, tagged) = self.vlans(port);
            let is_in_any = !self.is_aware(port) || untagged.is_some() || !tagged.is_empty();
            is_in_any && !self.config.ports[port].macs.is_empty()
        })
    }

    fn isolated(&self, a: usize, b: usize) -> bool {
        let group = |port: usize| self.config.ports[port].group.as_ref();
        group(a).is_some() && group(a) == group(b)
    }

    /// Returns the ports that a frame goes to, and its bytes there.
    fn pass(&mut self, from: usize, sent: &Sent) -> Vec<(usize, Vec<u8>)> {
        let before = &sent.bytes[..];
        // Bytes that the switch does not check have their last value.
        let after = sent.later.as_deref().unwrap_or(before);
        if self.config.mode == Mode::Patch {
            let partner = from ^ 1;
            return match partner < self.config.ports.len() {
                true => vec![(partner, after.to_vec())],
                false => self.drop(),
            };
        }
        if before.len() < 14 {
            return self.drop();
        }
        let (mut vlan, mut tci, mut rest) = (0, 0, 14);
        if self.is_aware(from) {
            let (untagged, tagged) = self.vlans(from);
            if before[12..14] == SERVICE_TAG {
                return self.drop();
            }
            if before[12..14] == TAG {
                if before.len() < 18 {
                    return self.drop();
                }
                tci = u16::from_be_bytes([before[14], before[15]]);
                rest = 18;
            }
            vlan = match tci & 0xfff {
                0 => match untagged {
                    Some(vlan) => vlan,
                    None => return self.drop(),
                },
                vlan if tagged.contains(&vlan) => vlan,
                _ => return self.drop(),
            };
        }
        let [to, source] = [0, 6].map(|at| <[u8; 6]>::try_from(&before[at..at + 6]).unwrap());
        if source[0] & 1 == 1 || source == [0; 6] {
            return self.drop();
        }
        match self.owner(vlan, source) {
            Some(owner) if owner != from => return self.drop(),
            Some(_) => {}
            None if self.config.ports[from].spoof_check => return self.drop(),
            None => _ = self.table.insert((vlan, source), from),
        }
        if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 16 {
            return self.drop();
        }
        let known = self.owner(vlan, to).or_else(|| self.table.get(&(vlan, to)).copied());
        let ways: Vec<usize> = match known {
            Some(to) if to == from || self.isolated(from, to) || !self.is_member(to, vlan) => {
                return self.drop();
            }
            Some(to) => vec![to],
            None => (0..self.config.ports.len())
                .filter(|to| *to != from && !self.isolated(from, *to) && self.is_member(*to, vlan))
                .collect(),
        };
        if ways.is_empty() {
            return self.drop();
        }
        let as_it_is = !self.is_aware(from) && !self.has_pins();
        let mut leaving = Vec::new();
        for to in ways {
            let kind = &before[rest - 2..rest];
            let mut frame = before[..12].to_vec();
            if self.is_aware(to) {
                if self.vlans(to).0 != Some(vlan) {
                    frame.extend(TAG);
                    frame.extend((tci & 0xf000 | vlan).to_be_bytes());
                } else if [TAG, SERVICE_TAG].iter().any(|tag| tag == kind) {
                    self.dropped += 1;
                    continue;
                }
            }
            frame.extend(kind);
            frame.extend(&after[rest..]);
            if frame.len() > FRAME_MAX {
                self.dropped += 1;
                continue;
            }
            leaving.push((to, if as_it_is { after.to_vec() } else { frame }));
        }
        leaving
    }

    fn drop(&mut self) -> Vec<(usize, Vec<u8>)> {
        self.dropped += 1;
        Vec::new()
    }

    /// Checks a frame that has left, independently of the model.
    fn check(&self, from: usize, to: usize, frame: &[u8]) {
        if self.config.mode == Mode::Patch {
            return assert_eq!(from ^ 1, to);
        }
        assert!(from != to && !self.isolated(from, to), "{from} to {to}: {frame:x?}");
        assert_eq!(self.is_aware(from), self.is_aware(to), "{from} to {to}: {frame:x?}");
        let mut within = 0;
        if self.is_aware(to) {
            let (untagged, tagged) = self.vlans(to);
            // As read by a switch that accepts both kinds of tag.
            let tag = [TAG, SERVICE_TAG].iter().any(|tag| *tag == frame[12..14]);
            let vlan = if tag { u16::from_be_bytes([frame[14], frame[15]]) & 0xfff } else { 0 };
            let vlan =
                if vlan == 0 { untagged } else { Some(vlan).filter(|vlan| tagged.contains(vlan)) };
            let vlan = vlan.expect("the egress port is in the VLAN");
            assert!(self.is_member(from, vlan), "{from} to {to} in {vlan}: {frame:x?}");
            within = vlan;
        }
        if self.has_pins() {
            let owner = self.owner(within, frame[6..12].try_into().unwrap());
            let is_right = match owner {
                Some(owner) => owner == from,
                None => !self.config.ports[from].spoof_check,
            };
            assert!(is_right, "{from} to {to} with a source address it may not use: {frame:x?}");
        }
    }
}

/// Runs switch and model on `bytes`.
pub(crate) fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let config = config(&mut bytes);
    let mut switch = Inline::with(config.clone());
    let ports = config.ports.len();
    let mut model = Model { config: &config, table: BTreeMap::new(), dropped: 0 };
    let mut sent = vec![0; ports];
    let mut frames = 0;
    while !bytes.0.is_empty() && frames < 600 {
        let from = bytes.next() % ports;
        let count = match bytes.next() {
            // Two batches of a worker together exceed this.
            255 => 256,
            count => 1 + count % 8,
        };
        let batch: Vec<Sent> = (0..count).map(|_| frame(&mut bytes)).collect();
        frames += count;
        sent[from] += count as u64;
        let mut expected = vec![Vec::new(); ports];
        for frame in &batch {
            for (to, bytes) in model.pass(from, frame) {
                expected[to].push(bytes);
            }
        }
        let seen = switch.pass(from, batch.clone());
        for (to, frames) in seen.iter().enumerate() {
            frames.iter().for_each(|frame| model.check(from, to, frame));
        }
        assert_eq!(seen, expected, "from {from} of {:#?}: {batch:x?}", config.ports);
    }
    let counters = |port| switch.switch.counters(port);
    let dropped: u64 = (0..ports).map(|port| counters(port).drops.total()).sum();
    assert_eq!(dropped, model.dropped, "each drop is counted once");
    for (port, sent) in sent.into_iter().enumerate() {
        assert_eq!(counters(port).rx_frames, sent, "each frame is counted once");
    }
}

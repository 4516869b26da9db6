//! VLAN tags through kernel ports, and through a switch between them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::veths::Veths;
use crate::common::{self, alone};
use dray_lab::placement;
use dray_netdev::Interface;
use dray_port::{Frame, Port, Wait, scratch};
use dray_switch::{PortConfig, PortStatus, Switch, SwitchConfig, SwitchControl};

/// Upper bound for one exchange; far longer than any frame takes on a busy host.
const LIMIT: Duration = Duration::from_secs(20);

/// Tag types: IEEE 802.1Q, and IEEE 802.1ad for the outer of two tags.
const C_TAG: u16 = 0x8100;
const S_TAG: u16 = 0x88a8;

/// Destination of frames.
const STATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0xbb];

/// Builds a frame with `tags` (type, and priority with VLAN), `len` bytes long without them, that
/// differs from every other frame with the same tags and length.
fn frame(tags: &[(u16, u16)], len: usize, number: u8) -> Vec<u8> {
    let mut frame = [STATION, [0x02, 0, 0, 0, 0, 0xaa]].concat();
    for (kind, tag) in tags {
        frame.extend([kind.to_be_bytes(), tag.to_be_bytes()].concat());
    }
    // Local Experimental Ethertype 1 (IEEE 802).
    frame.extend([0x88, 0xb5, number]);
    let whole = len + 4 * tags.len();
    let at = frame.len();
    frame.extend((0..whole - at).map(|at| at as u8 ^ number));
    frame
}

/// Creates a veth pair and waits until it carries frames: the kernel drops earlier ones.
fn add(veths: &Veths, a: &str, b: &str, mtu: u32) {
    veths.add(a, b, 1, mtu);
    let is_running = |name: &str| veths.0.enter(|| Interface::find(name)?.is_running()).unwrap();
    assert!(common::eventually(|| is_running(a) && is_running(b)), "{a} and {b} carry nothing");
}

/// Receives from `port` until `count` frames have arrived.
fn receive(port: &mut Port, count: usize) -> Vec<Vec<u8>> {
    let (mut received, mut room) = (Vec::new(), scratch());
    let deadline = Instant::now() + LIMIT;
    while received.len() < count && Instant::now() < deadline {
        let take = &mut |lent: &[Frame<'_>]| {
            let ours = lent.iter().map(|frame| frame.bytes(&mut room).to_vec());
            // Skip the kernel's own frames.
            received.extend(ours.filter(|frame| frame.starts_with(&STATION)));
            lent.len()
        };
        port.rx[0].receive(take).unwrap();
    }
    received
}

/// Transmits `frames` one by one, and skips those that the port refuses.
fn transmit(port: &mut Port, frames: &[Vec<u8>]) {
    for frame in frames {
        let frame = Frame::from(&frame[..]);
        let deadline = Instant::now() + LIMIT;
        while port.tx[0].transmit(&[frame]).unwrap() == 0 {
            assert!(Instant::now() < deadline, "the port takes nothing");
        }
    }
}

/// Returns frames of several lengths, without a tag and with every kind of tag.
fn all_kinds(longest: usize) -> Vec<Vec<u8>> {
    let kinds: [&[(u16, u16)]; 7] = [
        &[],
        &[(C_TAG, 20)],
        &[(C_TAG, 0xe000 | 4094)],
        // A priority without a VLAN.
        &[(C_TAG, 0x6000)],
        &[(C_TAG, 0)],
        &[(S_TAG, 20)],
        &[(C_TAG, 10), (C_TAG, 20)],
    ];
    let mut frames = Vec::new();
    for (number, tags) in (0..).zip(kinds) {
        for len in [60, 64, 200, 1000, longest - 4, longest] {
            // The kernel permits one 802.1Q tag beyond the MTU, and nothing else.
            let long = tags.len() > 1 || tags.iter().any(|(kind, _)| *kind == S_TAG);
            if !long || len + 4 * tags.len() <= longest {
                frames.push(frame(tags, len, number));
            }
        }
    }
    frames
}

#[test]
fn raw_port_receives_frames_with_their_vlan_tags() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[]);
    for mtu in [1500, 9000] {
        let (a, b) = (format!("a{mtu}"), format!("b{mtu}"));
        add(&veths, &a, &b, mtu);
        let frames = all_kinds(mtu as usize + 14);
        for keys in ["batch=1", "batch=8", "batch=8&ring=1"] {
            let mut from = veths.open(&format!("raw:{a}?{keys}"));
            let mut to = veths.open(&format!("raw:{b}?{keys}"));
            transmit(&mut from, &frames);
            let received = receive(&mut to, frames.len());
            for (received, sent) in received.iter().zip(&frames) {
                let len = |frame: &[u8]| frame.len();
                assert_eq!(received[..18], sent[..18], "{keys}");
                assert!(received == sent, "{} as {} bytes", len(sent), len(received));
            }
            assert_eq!(received.len(), frames.len());
            assert_eq!(to.rx[0].dropped().unwrap(), 0);
        }
    }
}

/// A frame that the kernel rejects costs no other frame, and does not close the port.
#[test]
fn raw_port_drops_only_oversized_frames() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[]);
    add(&veths, "a", "b", 1500);
    for keys in ["batch=1", "batch=8", "batch=8&ring=1"] {
        let mut from = veths.open(&format!("raw:a?{keys}"));
        let mut to = veths.open("raw:b?batch=8");
        let good = [frame(&[], 60, 1), frame(&[(C_TAG, 20)], 1514, 2), frame(&[], 1514, 3)];
        let bad = [
            frame(&[], 1518, 4),
            frame(&[(S_TAG, 20)], 1514, 5),
            frame(&[(C_TAG, 20)], 1515, 6),
            vec![0xff; 13],
        ];
        let mixed = [&good[0], &bad[0], &bad[1], &good[1], &bad[2], &bad[3], &good[2]];
        let mixed: Vec<_> = mixed.iter().map(|frame| Frame::from(&frame[..])).collect();
        assert_eq!(from.tx[0].transmit(&mixed).unwrap(), mixed.len());
        assert_eq!(from.tx[0].dropped(), 4);
        assert!(receive(&mut to, 3) == good);
        for (frame, fits) in
            good.iter().map(|frame| (frame, true)).chain([(&bad[0], false), (&bad[2], false)])
        {
            assert_eq!(from.tx[0].accepts(&Frame::from(&frame[..])), fits, "{} bytes", frame.len());
        }
    }
}

#[test]
fn raw_port_tells_frames_missed_from_others() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[]);
    add(&veths, "a", "b", 9000);
    for keys in ["batch=64", "batch=64&ring=1"] {
        let [mut from, mut to] = ["a", "b"].map(|name| veths.open(&format!("raw:{name}?{keys}")));
        // The socket's buffer holds some 8 MiB, its ring as many.
        let long = frame(&[], 9000, 1);
        let frames = vec![Frame::from(&long[..]); 64];
        for _ in 0..40 {
            assert_eq!(from.tx[0].transmit(&frames).unwrap(), frames.len(), "{keys}");
        }
        for _ in 0..2 {
            let missed = to.rx[0].missed().unwrap();
            assert!(missed > 0 && to.rx[0].dropped().unwrap() == missed, "{keys}: {missed}");
        }
        let missed = to.rx[0].missed().unwrap();
        let received = receive(&mut to, 2560 - missed as usize).len() as u64;
        assert_eq!(received + missed, 2560, "{keys}");
    }
}

/// VLAN mode of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Plain,
    Access(u16),
    Trunk { tagged: [u16; 2], native: u16 },
}

/// Model of what a switch does with frames between such ports.
impl Mode {
    const ALL: [Self; 4] = [
        Self::Plain,
        Self::Access(20),
        Self::Trunk { tagged: [10, 20], native: 0 },
        Self::Trunk { tagged: [20, 30], native: 10 },
    ];

    fn config(self) -> String {
        match self {
            Self::Plain => String::new(),
            Self::Access(vlan) => format!(",vlan={vlan}"),
            Self::Trunk { tagged: [a, b], native: 0 } => format!(",trunk={a}+{b}"),
            Self::Trunk { tagged: [a, b], native } => format!(",trunk={a}+{b},native={native}"),
        }
    }

    /// VLAN of a frame that arrives with `tags`, and its tag's priority; 0 is no VLAN. `None`: the
    /// frame is dropped.
    fn ingress(self, tags: &[(u16, u16)]) -> Option<(u16, u16)> {
        let (kind, tag) = tags.first().copied().unwrap_or((C_TAG, 0));
        let (vlan, priority) = (tag & 0xfff, tag & 0xf000);
        let vlan = match self {
            Self::Plain => return Some((0, 0)),
            _ if kind != C_TAG => return None,
            Self::Access(access) => Some(access).filter(|_| vlan == 0),
            Self::Trunk { native, .. } if vlan == 0 => Some(native).filter(|native| *native != 0),
            Self::Trunk { tagged, .. } => Some(vlan).filter(|vlan| tagged.contains(vlan)),
        };
        Some((vlan?, priority))
    }

    /// Tags with which a frame that arrived with `tags` leaves.
    fn egress(self, tags: &[(u16, u16)], (vlan, priority): (u16, u16)) -> Option<Vec<(u16, u16)>> {
        let inner = tags.get(1..).unwrap_or_default();
        let is_tagged = match self {
            Self::Plain => return (vlan == 0).then(|| tags.to_vec()),
            Self::Access(access) if vlan == access => false,
            Self::Trunk { native, .. } if vlan != 0 && vlan == native => false,
            Self::Trunk { tagged, .. } if tagged.contains(&vlan) => true,
            _ => return None,
        };
        match is_tagged {
            true => Some([&[(C_TAG, priority | vlan)][..], inner].concat()),
            // The inner tag would be taken for the frame's own.
            false => inner.is_empty().then(Vec::new),
        }
    }
}

/// Switch ports and their other ends: kind, and both URIs with `S` and `P` for interface names and
/// `F` for a folder.
const KINDS: [(&str, &str, &str); 8] = [
    ("raw", "raw:S?batch=64", "raw:P?batch=64"),
    ("generic", "afxdp:S?xdp=generic", "raw:P?batch=64"),
    ("native", "afxdp:S?xdp=native", "raw:P?batch=64"),
    ("tap", "tap:S", "raw:S?batch=64"),
    ("vhost", "vhost:F/S", "virtio:F/S"),
    ("virtio", "virtio:F/S?server=1", "vhost:F/S?client=1"),
    ("unix", "unix:F/S?peer=F/P", "unix:F/P?peer=F/S"),
    ("memif", "memif:F/S", "memif:F/S?role=server"),
];

struct End {
    kind: &'static str,
    mode: Mode,
    port: Port,
    expected: BTreeMap<u32, Vec<u8>>,
}

impl End {
    /// Length of the longest untagged frame that passes.
    fn longest(&self) -> usize {
        match self.kind {
            "vhost" | "virtio" | "memif" => 9018,
            "unix" => 9014,
            _ => 1514,
        }
    }

    fn fits(&self, tags: &[(u16, u16)], len: usize) -> bool {
        let is_tagged = tags.first().is_some_and(|(kind, _)| *kind == C_TAG);
        let whole = len + 4 * tags.len();
        whole <= (self.longest() + 4 * usize::from(is_tagged)).min(9018)
    }
}

/// Builds a broadcast frame whose source address contains its number.
fn numbered(tags: &[(u16, u16)], len: usize, number: u32) -> Vec<u8> {
    let mut bytes = frame(tags, len.max(16), number as u8);
    bytes.truncate(len + 4 * tags.len());
    bytes[..8].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0xfe]);
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Sends every kind of frame from every kind of port, in every mode, to every other.
#[test]
fn vlan_forwarding_matches_model() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[]);
    let folder = tempfile::tempdir().unwrap();
    let cpu = placement::allowed()[0] as u32;
    let mut config = SwitchConfig::from_toml("mode = 'learning'").unwrap();
    config.cpus = vec![cpu];
    let switch = Switch::start(&config).unwrap();
    let mut ends = Vec::new();
    for (number, (kind, ours, theirs)) in KINDS.into_iter().enumerate() {
        for (mode_number, mode) in Mode::ALL.into_iter().enumerate() {
            let [s, p] = ["s", "p"].map(|end| format!("{end}{number}x{mode_number}"));
            let name = |uri: &str| name(uri, &s, &p, folder.path());
            if ours.contains(":S") && kind != "tap" {
                add(&veths, &s, &p, 1500);
            }
            let port = format!("{s}={}{}", name(ours), mode.config());
            let port: PortConfig = port.parse().unwrap();
            veths.0.enter(|| Ok(switch.add_port(&port, Vec::new()))).unwrap().unwrap();
            let mut port = veths.open(&name(theirs));
            port.rx.iter_mut().for_each(|rx| rx.set_wait(Wait::Poll { pause_us: 0 }));
            ends.push(End { kind, mode, port, expected: BTreeMap::new() });
        }
    }
    let is_up = |end: &End| end.port.tx[0].is_ready();
    assert!(common::eventually(|| ends.iter().all(is_up)), "a peer");
    let is_running =
        || switch.ports().iter().all(|port| port.state == dray_switch::PortState::Running);
    assert!(common::eventually(is_running), "{:?}", switch.ports());

    let tags: [&[(u16, u16)]; 11] = [
        &[],
        &[(C_TAG, 10)],
        &[(C_TAG, 0xa000 | 20)],
        &[(C_TAG, 30)],
        &[(C_TAG, 40)],
        &[(C_TAG, 0xe000)],
        &[(S_TAG, 20)],
        &[(C_TAG, 10), (C_TAG, 20)],
        &[(C_TAG, 0x4000), (C_TAG, 20)],
        &[(C_TAG, 20), (S_TAG, 10)],
        &[(S_TAG, 20), (C_TAG, 20)],
    ];
    let mut number = 0;
    let mut seen = 0;
    for from in 0..ends.len() {
        let mut frames = Vec::new();
        for tags in tags {
            for len in [16, 60, 1000, 1510, 1514, 9014] {
                if !ends[from].fits(tags, len) {
                    continue;
                }
                number += 1;
                frames.push(numbered(tags, len, number));
                let Some(way) = ends[from].mode.ingress(tags) else { continue };
                for (index, to) in ends.iter_mut().enumerate().filter(|(index, _)| *index != from) {
                    let Some(tags) = to.mode.egress(tags, way) else { continue };
                    if to.fits(&tags, len) {
                        assert_ne!(index, from);
                        to.expected.insert(number, numbered(&tags, len, number));
                    }
                }
            }
        }
        // As many frames as fit into any queue.
        for frames in frames.chunks(32) {
            transmit(&mut ends[from].port, frames);
            let deadline = Instant::now() + LIMIT;
            while ends.iter().any(|end| !end.expected.is_empty() && late(end, frames)) {
                for end in &mut ends {
                    seen += check(end);
                }
                let missing = || {
                    let of = |end: &End| {
                        let first = end.expected.iter().next();
                        format!(
                            "{} {:?}: {:x?}",
                            end.kind,
                            end.mode,
                            first.map(|(_, frame)| &frame[..frame.len().min(24)])
                        )
                    };
                    let all = ends.iter().filter(|end| late(end, frames));
                    all.map(of).collect::<Vec<_>>().join("\n")
                };
                let (kind, mode) = (ends[from].kind, ends[from].mode);
                assert!(Instant::now() < deadline, "no frame from {kind} {mode:?}:\n{}", missing());
            }
        }
    }
    assert!(seen > 8000, "{seen} frames");
    for end in &mut ends {
        assert_eq!(check(end), 0, "{} {:?}", end.kind, end.mode);
    }
}

fn name(uri: &str, s: &str, p: &str, folder: &Path) -> String {
    let part = |c: char| match c {
        'S' => s.to_owned(),
        'P' => p.to_owned(),
        'F' => folder.display().to_string(),
        c => c.to_string(),
    };
    uri.chars().map(part).collect()
}

/// Returns true if one of `frames` has yet to arrive.
fn late(end: &End, frames: &[Vec<u8>]) -> bool {
    frames.iter().any(|frame| end.expected.contains_key(&number_of(frame)))
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame[8..].first_chunk().unwrap())
}

/// Receives at an end, where each frame must be expected, unchanged. Returns the number of frames.
fn check(end: &mut End) -> usize {
    let (mut count, mut room) = (0, scratch());
    let End { kind, mode, port, expected } = end;
    let take = &mut |lent: &[Frame<'_>]| {
        for frame in lent {
            let bytes = frame.bytes(&mut room);
            // Skip the kernel's own frames.
            if bytes.len() < 12 || bytes[6..8] != [0x02, 0xfe] {
                continue;
            }
            let head = &bytes[..bytes.len().min(24)];
            let wanted = expected.remove(&number_of(bytes));
            let Some(wanted) = wanted else { panic!("{kind} {mode:?}: unexpected {head:x?}") };
            let wanted_head = &wanted[..wanted.len().min(24)];
            assert_eq!(head, wanted_head, "{kind} {mode:?}");
            assert!(bytes == wanted, "{kind} {mode:?}: {} bytes of {}", bytes.len(), wanted.len());
            count += 1;
        }
        lent.len()
    };
    port.rx[0].receive(take).unwrap();
    count
}

#[test]
fn stations_of_an_interface_that_goes_down_are_forgotten() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[]);
    let mut config = SwitchConfig::from_toml("mode = 'learning'").unwrap();
    config.cpus = vec![placement::allowed()[0] as u32];
    let switch = Switch::start(&config).unwrap();
    let stations = |port: &str| {
        let is_it = |status: &PortStatus| status.config.name.as_str() == port;
        switch.ports().into_iter().find(is_it).unwrap().stations
    };
    let add_port = |port: &str| {
        let port: PortConfig = port.parse().unwrap();
        veths.0.enter(|| Ok(switch.add_port(&port, Vec::new()))).unwrap().unwrap();
    };
    add(&veths, "s0", "p0", 1500);
    add(&veths, "s1", "p1", 1500);
    add_port("raw=raw:s0");
    add_port("stays=raw:s1");
    add_port("tap=tap:t0");
    // The interface whose frames the port receives, and the one that goes down: of a veth pair, the
    // peer's.
    let mut other = veths.open("raw:p1?wait=poll");
    transmit(&mut other, &[frame(&[], 60, 0)]);
    assert!(common::eventually(|| stations("stays") == 1));
    for (port, interface) in [("raw", "p0"), ("raw", "s0"), ("tap", "t0")] {
        let mut peer = veths.open(&format!("raw:{}?wait=poll", interface.replace('s', "p")));
        let mut sent = frame(&[], 60, 0);
        sent[11] = 0xac;
        transmit(&mut peer, &[sent]);
        // The kernel may send from the interface's own address as well.
        assert!(common::eventually(|| stations(port) >= 1), "{port}");
        veths.ip(&format!("link set dev {interface} down"));
        assert!(common::eventually(|| stations(port) == 0), "{port} {interface}");
        veths.ip(&format!("link set dev {interface} up"));
        let up = || veths.0.enter(|| Interface::find(interface)?.is_running()).unwrap();
        assert!(common::eventually(up));
    }
    assert_eq!(stations("stays"), 1);
}

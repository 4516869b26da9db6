//! Helpers of the tests of a running switch: a switch, test ports at its ends, and frames with
//! known content.
#![allow(dead_code, unreachable_pub, reason = "each test program uses only a part")]

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dray_port::{Frame, LinkState, Port, PortUri, Receive, Scratch, Transmit, Wait, scratch};
use dray_switch::{
    Counters, DropReason, PortConfig, PortState, PortStatus, Switch, SwitchConfig, SwitchControl,
};
use dray_wire::MacAddr;

/// Much longer than any step of these tests takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Frames in flight at a time: this many long ones fit the smallest ring.
const WINDOW: u32 = 32;
/// Local Experimental Ethertype 1 (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Waits until `done` returns true.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "timed out after {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the CPUs that this process may use, the last one first: the switch gets that one.
pub fn cpus() -> Vec<u32> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let max = rustix::thread::CpuSet::MAX_CPU;
    (0..max).rev().filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

/// Starts a switch with one worker, configured by `text`.
pub fn switch(text: &str) -> Switch {
    let mut config = SwitchConfig::from_toml(text).unwrap();
    if config.cpus.is_empty() {
        config.cpus = vec![cpus()[0]];
    }
    config.check(&cpus()).unwrap();
    Switch::start(&config).unwrap()
}

/// Adds a port given as on the command line, `a=vhost:PATH,vlan=1`.
pub fn add(switch: &Switch, port: &str) {
    switch.add_port(&port.parse::<PortConfig>().unwrap(), Vec::new()).unwrap();
}

pub fn status(switch: &Switch, name: &str) -> PortStatus {
    switch.ports().into_iter().find(|port| port.config.name.as_str() == name).unwrap()
}

pub fn counters(switch: &Switch, name: &str) -> Counters {
    status(switch, name).counters
}

pub fn drops(switch: &Switch, name: &str, reason: DropReason) -> u64 {
    counters(switch, name).drops.get(reason)
}

#[track_caller]
pub fn wait_until_running(switch: &Switch) {
    let runs = |port: &PortStatus| port.state == PortState::Running;
    eventually("all ports running", || switch.ports().iter().all(runs));
}

/// Opens a test port, which need not have a peer yet.
pub fn open(uri: &str) -> Port {
    let mut port = uri.parse::<PortUri>().unwrap().open().unwrap();
    for rx in &mut port.rx {
        rx.set_wait(Wait::Poll { pause_us: 0 });
    }
    port
}

/// Opens a test port at the other end of `socket`, and waits until it has a peer.
#[track_caller]
pub fn plug(socket: &Path, options: &str) -> Port {
    let port = open(&format!("virtio:{}?{options}", socket.display()));
    wait_until_up(&port);
    port
}

#[track_caller]
pub fn wait_until_up(port: &Port) {
    let link = port.link.as_ref().unwrap();
    eventually("a peer", || link.status().state == LinkState::Running);
    eventually("all queues", || port.tx.iter().all(|tx| tx.is_ready()));
}

/// A series of numbered frames.
#[derive(Clone, Debug)]
pub struct Frames {
    pub from: MacAddr,
    pub to: MacAddr,
    /// The VLAN tag's two bytes: priority and VLAN.
    pub tag: Option<u16>,
    /// Frame lengths without tag, used in turn.
    pub lens: &'static [usize],
    run: u32,
}

pub const LENS: &[usize] = &[60, 64, 65, 127, 128, 256, 590, 1024, 1500, 1514];

impl Frames {
    /// Creates a series from one station to another, of many lengths.
    pub fn between(from: u64, to: u64) -> Self {
        let (from, to) = (MacAddr::local(from), MacAddr::local(to));
        Self { from, to, tag: None, lens: LENS, run: 0 }
    }

    pub fn broadcast(from: u64) -> Self {
        Self { to: MacAddr([0xff; 6]), ..Self::between(from, 0) }
    }

    pub fn tagged(self, tag: u16) -> Self {
        Self { tag: Some(tag), ..self }
    }

    pub fn untagged(self) -> Self {
        Self { tag: None, ..self }
    }

    pub fn lens(self, lens: &'static [usize]) -> Self {
        Self { lens, ..self }
    }

    /// Returns the series in the opposite direction.
    pub fn swapped(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }

    /// Builds the frame with this number.
    pub fn make(&self, number: u32) -> Vec<u8> {
        let len = self.lens[number as usize % self.lens.len()];
        let mut bytes = [self.to.0, self.from.0].concat();
        if let Some(tag) = self.tag {
            bytes.extend([0x81, 0x00]);
            bytes.extend(tag.to_be_bytes());
        }
        let whole = len + 4 * usize::from(self.tag.is_some());
        bytes.extend(ETHERTYPE);
        bytes.extend(self.run.to_be_bytes());
        bytes.extend(number.to_be_bytes());
        let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
        while bytes.len() < whole {
            // xorshift32 (Marsaglia 2003)
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            bytes.push(state as u8);
        }
        bytes
    }

    /// Returns the number of a frame if it belongs to this series.
    fn number(&self, bytes: &[u8]) -> Option<u32> {
        let at = 12 + 4 * usize::from(bytes.get(12..14) == Some(&[0x81, 0x00]));
        let head = bytes.get(at..at + 10)?;
        let run = u32::from_be_bytes(head[2..6].try_into().unwrap());
        let ours = head[..2] == ETHERTYPE && run == self.run;
        ours.then(|| u32::from_be_bytes(head[6..].try_into().unwrap()))
    }

    /// Returns this series with the identity of `sent`.
    pub fn like(&self, sent: &Self) -> Self {
        Self { run: sent.run, ..self.clone() }
    }

    /// Gives this series a new identity, distinct from all earlier ones.
    fn begin(&mut self) {
        static RUN: AtomicU32 = AtomicU32::new(1);
        self.run = RUN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Receives once and calls `seen` for each of `frames` that has arrived.
fn look(
    rx: &mut [Box<dyn Receive>],
    room: &mut Scratch,
    frames: &Frames,
    mut seen: impl FnMut(u32, &[u8]),
) {
    for rx in rx {
        let take = &mut |lent: &[Frame<'_>]| {
            for frame in lent {
                let bytes = frame.bytes(room);
                if let Some(number) = frames.number(bytes) {
                    seen(number, bytes);
                }
            }
            lent.len()
        };
        rx.receive(take).unwrap();
    }
}

/// Transmitting end, and receiving end.
pub type Ends<'a> = (&'a mut [Box<dyn Transmit>], &'a mut [Box<dyn Receive>]);

/// Passes `count` of `sent` from one port to another, over all its queues in turn, a window at a
/// time. Each must arrive as in `expected`, once and in the order of its queue.
#[track_caller]
pub fn pass((tx, rx): Ends<'_>, sent: &Frames, expected: &Frames, count: u32) {
    let (mut sent, mut expected) = (sent.clone(), expected.clone());
    sent.begin();
    expected.run = sent.run;
    let queues = tx.len() as u32;
    let mut room = scratch();
    let mut next: Vec<u32> = (0..queues).collect();
    let (mut posted, mut arrived) = (0, 0);
    let deadline = Instant::now() + LIMIT;
    while arrived < count {
        while posted < count && posted - arrived < WINDOW {
            let bytes = sent.make(posted);
            let tx = &mut tx[(posted % queues) as usize];
            if tx.transmit(&[Frame::from(&bytes[..])]).unwrap() == 0 {
                break;
            }
            posted += 1;
        }
        let before = arrived;
        look(rx, &mut room, &sent, |number, bytes| {
            let next = &mut next[(number % queues) as usize];
            assert_eq!(number, *next, "number of {sent:?}");
            assert_eq!(bytes, expected.make(number), "{number} of {expected:?}");
            *next += queues;
            arrived += 1;
        });
        assert!(Instant::now() < deadline, "{arrived} of {posted} arrived: {sent:?}");
        if arrived == before {
            // Other threads may need the CPU for the frames to arrive.
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Sends until frames of every queue arrive: the switch may need a moment until it forwards.
#[track_caller]
pub fn reach((tx, rx): Ends<'_>, frames: &Frames) {
    let mut frames = frames.clone();
    frames.begin();
    let mut room = scratch();
    let mut reached = vec![false; tx.len()];
    eventually(&format!("first frame on every queue: {frames:?}"), || {
        for (queue, tx) in tx.iter_mut().enumerate() {
            if !reached[queue] {
                tx.transmit(&[Frame::from(&frames.make(queue as u32)[..])]).unwrap();
            }
        }
        look(rx, &mut room, &frames, |number, _| reached[number as usize] = true);
        reached.iter().all(|reached| *reached)
    });
}

/// Sends one frame, and returns the series that it belongs to.
#[track_caller]
pub fn send_one(tx: &mut dyn Transmit, frames: &Frames) -> Frames {
    let mut frames = frames.clone();
    frames.begin();
    eventually("room to send", || tx.transmit(&[Frame::from(&frames.make(0)[..])]).unwrap() == 1);
    frames
}

/// Returns all of `frames` that have arrived at a port.
pub fn arrived(port: &mut Port, frames: &Frames) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    look(&mut port.rx, &mut scratch(), frames, |_, bytes| found.push(bytes.to_vec()));
    found
}

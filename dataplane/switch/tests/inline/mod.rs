//! A switch that runs on the test's own thread, between ports in memory whose sender may change a
//! frame while the switch is at work.
#![allow(dead_code, unreachable_pub, reason = "each test program uses only a part")]

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dray_port::{
    BATCH_MAX, Batch, FRAME_LIMIT, Frame, Port, Receive, Scratch, Take, Transmit, scratch,
};
use dray_switch::{Counters, DropReason, InlineSwitch, SwitchConfig};

/// A frame that a peer hands over.
#[derive(Clone, Debug)]
pub struct Sent {
    pub bytes: Vec<u8>,
    /// If set, the frame is in memory that the peer shares: its bytes, of the same length, from the
    /// moment on at which the first frame of the batch is transmitted.
    pub later: Option<Vec<u8>>,
}

impl From<Vec<u8>> for Sent {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, later: None }
    }
}

type Changes = Arc<Mutex<Vec<(Arc<[AtomicU8]>, Vec<u8>)>>>;

enum Lent {
    Private(Vec<u8>),
    Shared(Arc<[AtomicU8]>),
}

impl Lent {
    fn frame(&self) -> Frame<'_> {
        match self {
            Self::Private(bytes) => Frame::from(&bytes[..]),
            Self::Shared(memory) => Frame::from(&memory[..]),
        }
    }
}

struct Source {
    input: Arc<Mutex<VecDeque<Sent>>>,
    changes: Changes,
}

impl Receive for Source {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let sent: Vec<Sent> = {
            let mut input = self.input.lock().unwrap();
            let count = input.len().min(BATCH_MAX);
            input.drain(..count).collect()
        };
        let lend = |sent: &Sent| match &sent.later {
            None => Lent::Private(sent.bytes.clone()),
            Some(later) => {
                assert_eq!(sent.bytes.len(), later.len());
                let memory: Arc<[AtomicU8]> =
                    sent.bytes.iter().copied().map(AtomicU8::new).collect();
                self.changes.lock().unwrap().push((memory.clone(), later.clone()));
                Lent::Shared(memory)
            }
        };
        let lent: Vec<Lent> = sent.iter().map(lend).collect();
        let batch: Batch<'_> = lent.iter().map(Lent::frame).collect();
        let taken = if batch.is_empty() { 0 } else { take(&batch) };
        let mut input = self.input.lock().unwrap();
        sent[taken..].iter().rev().for_each(|sent| input.push_front(sent.clone()));
        self.changes.lock().unwrap().clear();
        Ok(batch.len())
    }
}

struct Sink {
    output: Arc<Mutex<Vec<Vec<u8>>>>,
    room: Arc<AtomicUsize>,
    changes: Changes,
    scratch: Scratch,
}

impl Transmit for Sink {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        for (memory, later) in self.changes.lock().unwrap().drain(..) {
            memory.iter().zip(later).for_each(|(byte, later)| byte.store(later, Relaxed));
        }
        let taken = frames.len().min(self.room.load(Relaxed));
        let mut output = self.output.lock().unwrap();
        output.extend(frames[..taken].iter().map(|frame| frame.bytes(&mut self.scratch).to_vec()));
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        FRAME_LIMIT
    }
}

/// A switch, and the state of its ports' peers.
pub struct Inline {
    pub switch: InlineSwitch,
    pub config: SwitchConfig,
    /// Number of frames of a batch that a peer takes.
    pub room: Arc<AtomicUsize>,
    inputs: Vec<Arc<Mutex<VecDeque<Sent>>>>,
    outputs: Vec<Arc<Mutex<Vec<Vec<u8>>>>>,
}

impl Inline {
    /// Creates the switch that `text` describes; its ports are in memory, whatever their URIs.
    pub fn new(text: &str) -> Self {
        let config = SwitchConfig::from_toml(text).unwrap();
        Self::with(config)
    }

    /// Like [`new`](Self::new), with `ports` as on the command line, without the URI: `a,vlan=10`.
    pub fn of(ports: &[&str]) -> Self {
        let port = |text: &&str| {
            let (name, keys) = text
                .split_once(',')
                .map_or((*text, String::new()), |(name, keys)| (name, format!(",{keys}")));
            format!("{name}=null:{keys}").parse().unwrap()
        };
        let ports = ports.iter().map(port).collect();
        Self::with(SwitchConfig {
            ports,
            control: "/tmp/unused".parse().unwrap(),
            ..SwitchConfig::default()
        })
    }

    pub fn with(config: SwitchConfig) -> Self {
        config.check(&[]).unwrap();
        let changes = Changes::default();
        let room = Arc::new(AtomicUsize::new(BATCH_MAX));
        let (mut inputs, mut outputs, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for _ in &config.ports {
            let (input, output) = (Arc::default(), Arc::default());
            let rx = Source { input: Arc::clone(&input), changes: changes.clone() };
            let tx = Sink {
                output: Arc::clone(&output),
                room: room.clone(),
                changes: changes.clone(),
                scratch: scratch(),
            };
            ports.push(Port { rx: vec![Box::new(rx)], tx: vec![Box::new(tx)], link: None });
            inputs.push(input);
            outputs.push(output);
        }
        let switch = InlineSwitch::new(&config, ports).unwrap();
        Self { switch, config, room, inputs, outputs }
    }

    pub fn index(&self, name: &str) -> usize {
        self.config.ports.iter().position(|port| port.name == *name).unwrap()
    }

    /// Hands `frames` over at a port.
    pub fn offer(&mut self, from: usize, frames: Vec<Sent>) {
        self.inputs[from].lock().unwrap().extend(frames);
    }

    /// Hands `frames` over at a port and moves them; returns what each port's peer gets, by port.
    pub fn pass(&mut self, from: usize, frames: Vec<Sent>) -> Vec<Vec<Vec<u8>>> {
        self.offer(from, frames);
        while !self.inputs[from].lock().unwrap().is_empty() {
            self.switch.step();
        }
        self.arrived()
    }

    /// Moves one batch of each port; returns what each port's peer gets, by port.
    pub fn step(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.switch.step();
        self.arrived()
    }

    fn arrived(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.outputs.iter().map(|output| std::mem::take(&mut *output.lock().unwrap())).collect()
    }

    /// Hands one frame over at port `from`; returns the ports where frames arrive, with the frames.
    pub fn send(&mut self, from: &str, frame: impl Into<Sent>) -> Vec<(String, Vec<u8>)> {
        let outputs = self.pass(self.index(from), vec![frame.into()]);
        let named = self.config.ports.iter().zip(outputs);
        named
            .flat_map(|(port, frames)| {
                frames.into_iter().map(|frame| (port.name.as_str().to_owned(), frame))
            })
            .collect()
    }

    pub fn counters(&self, name: &str) -> Counters {
        self.switch.counters(self.index(name))
    }

    pub fn drops(&self, name: &str, reason: DropReason) -> u64 {
        self.counters(name).drops.get(reason)
    }
}

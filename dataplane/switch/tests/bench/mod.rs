//! A switch on the test's own thread between ports whose frames have offloads.
#![allow(dead_code, unreachable_pub, reason = "each test program uses only a part")]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use dray_port::{Batch, Frame, Port, Receive, Take, Transmit};
use dray_switch::{InlineSwitch, SwitchConfig};
use dray_wire::offload::{Offload, Offloads};

pub type Frames = Arc<Mutex<VecDeque<(Vec<u8>, Offload)>>>;

struct Source(Frames);

impl Receive for Source {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let frames: Vec<_> = self.0.lock().unwrap().iter().cloned().collect();
        let lend = |(bytes, offload): &'_ (Vec<u8>, Offload)| (bytes.clone(), *offload);
        let lent: Vec<_> = frames.iter().map(lend).collect();
        let batch: Batch<'_> =
            lent.iter().map(|(bytes, offload)| Frame::with_offload(bytes, *offload)).collect();
        let taken = if batch.is_empty() { 0 } else { take(&batch) };
        self.0.lock().unwrap().drain(..taken);
        Ok(batch.len())
    }
}

struct Sink {
    seen: Frames,
    offloads: Offloads,
    frame_max: usize,
    /// Number of frames taken per call.
    room: usize,
}

impl Transmit for Sink {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let taken = frames.len().min(self.room);
        for frame in &frames[..taken] {
            assert!(frame.has_offload() || frame.len() <= self.frame_max + 4);
            let mut bytes = vec![0; frame.len()];
            frame.copy_into(&mut bytes);
            self.seen.lock().unwrap().push_back((bytes, frame.offload()));
        }
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }
}

/// A switch between a port that sends frames and others, each with what it takes over, the length
/// of its frames, and its room.
pub struct Bench {
    pub switch: InlineSwitch,
    pub sent: Frames,
    seen: Vec<Frames>,
}

impl Bench {
    pub fn new(settings: &str, ports: &[(&str, Offloads, usize, usize)]) -> Self {
        let text = ports.iter().map(|(keys, ..)| format!("[[ports]]\nuri = 'null:'\n{keys}\n"));
        let text = format!("{settings}\n{}", text.collect::<String>());
        let config = SwitchConfig::from_toml(&text).unwrap();
        let sent = Frames::default();
        let seen: Vec<_> = ports.iter().map(|_| Frames::default()).collect();
        let opened = ports.iter().enumerate().map(|(index, &(_, offloads, frame_max, room))| {
            let input = if index == 0 { sent.clone() } else { Frames::default() };
            let sink = Sink { seen: seen[index].clone(), offloads, frame_max, room };
            Port { rx: vec![Box::new(Source(input))], tx: vec![Box::new(sink)], link: None }
        });
        let switch = InlineSwitch::new(&config, opened.collect()).unwrap();
        Self { switch, sent, seen }
    }

    pub fn send(&mut self, bytes: Vec<u8>, offload: Offload) {
        self.sent.lock().unwrap().push_back((bytes, offload));
        for _ in 0..1000 {
            self.switch.step();
            if self.sent.lock().unwrap().is_empty() {
                // The rest of a packet may wait for the receiver.
                (0..100).for_each(|_| self.switch.step());
                return;
            }
        }
        panic!("the switch does not take the frame");
    }

    pub fn seen(&self, port: usize) -> Vec<(Vec<u8>, Offload)> {
        self.seen[port].lock().unwrap().drain(..).collect()
    }
}

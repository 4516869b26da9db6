//! The receiving half of a VXLAN port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use dray_wire::ethernet::Ethernet;
use dray_wire::offload::Offload;
use dray_wire::vxlan::{self, VXLAN_LEN};

use super::calls::{Incoming, Message};
use super::memory::Memory;
use super::remotes::Sources;
use super::seconds;
use super::sockets::Sockets;
use super::stations::Stations;
use crate::frame::received::{Filled, ReceivedFrames};
use crate::socket::{dropped, is_transient};
use crate::total::Total;
use crate::wait::PollPause;
use crate::{FRAME_LIMIT, Receive, Take, Wait};

/// Messages per system call. Each may be of many datagrams.
const MESSAGES: usize = 64;

pub(super) struct VxlanReceive {
    sockets: Arc<Sockets>,
    drops: Total,
    memory: Memory,
    header: [u8; VXLAN_LEN],
    incoming: Incoming,
    /// Number of messages in the buffers, and number of those that were read.
    count: usize,
    read: usize,
    /// The message that is being read, and the number of its sender.
    message: Option<(Message, u16)>,
    filled: ReceivedFrames,
    sources: Sources,
    stations: Option<Arc<Stations>>,
    wait: Wait,
    /// True if no system call is made.
    is_draining: bool,
    pause: PollPause,
    /// Datagrams of other hosts, of other networks, malformed, or with frames that are too long.
    refused: u64,
}

impl VxlanReceive {
    pub(super) fn new(
        sockets: Arc<Sockets>,
        memory: Memory,
        vni: u32,
        wait: Wait,
        sources: Sources,
        stations: Option<Arc<Stations>>,
    ) -> Self {
        let drops = Total::new(&dropped(sockets.receiving.as_fd()), u32::MAX.into());
        Self {
            sockets,
            drops,
            memory,
            header: vxlan::header(vni),
            incoming: Incoming::new(MESSAGES),
            count: 0,
            read: 0,
            message: None,
            filled: ReceivedFrames::default(),
            sources,
            stations,
            wait,
            is_draining: false,
            pause: PollPause::default(),
            refused: 0,
        }
    }

    /// Finds the next frames in the buffers; receives messages if no frame is left there.
    fn fill(&mut self) -> io::Result<()> {
        self.filled.clear();
        if self.message.is_none() && self.read == self.count {
            self.receive_messages()?;
        }
        let now = if self.stations.is_some() { seconds() } else { 0 };
        while !self.filled.is_full() {
            let Some((message, from)) = self.message.take().or_else(|| self.next(now)) else {
                break;
            };
            self.message = self.unpack(message, from, now);
        }
        Ok(())
    }

    fn receive_messages(&mut self) -> io::Result<()> {
        (self.count, self.read) = (0, 0);
        if self.is_draining || self.pause.is_active(self.wait) {
            return Ok(());
        }
        let block = self.wait == Wait::Block;
        self.count = match self.incoming.receive(self.sockets.receiving.as_fd(), block) {
            Ok(count) => count,
            Err(error) if is_transient(&error) => 0,
            Err(error) => return Err(error),
        };
        if self.count <= MESSAGES / 2 {
            self.pause.start(self.wait);
        }
        Ok(())
    }

    /// Returns the next message from an accepted host.
    fn next(&mut self, now: u32) -> Option<(Message, u16)> {
        while self.read < self.count {
            let message = self.incoming.message(self.read);
            self.read += 1;
            let Some(message) = message.filter(|message| !message.bytes.is_empty()) else {
                self.refused += 1;
                continue;
            };
            match self.sources.number(message.from, now) {
                Some(from) => return Some((message, from)),
                None => self.refused += message.bytes.len().div_ceil(message.size) as u64,
            }
        }
        None
    }

    /// Adds the frames of a message to the batch. Returns the rest of the message if the batch is
    /// full.
    fn unpack(&mut self, mut message: Message, from: u16, now: u32) -> Option<(Message, u16)> {
        let bytes = self.incoming.bytes();
        while !message.bytes.is_empty() {
            if self.filled.is_full() {
                return Some((message, from));
            }
            let start = message.bytes.start;
            message.bytes.start = message.bytes.end.min(start + message.size);
            match vxlan::frame(&bytes[start..message.bytes.start], &self.header) {
                Ok(frame) if frame.len() <= FRAME_LIMIT => {
                    let (start, len) = (start + VXLAN_LEN, frame.len());
                    self.filled.push(Filled { start, len, offload: Offload::None });
                    if let Some(stations) = &self.stations
                        && let Some(Ethernet { src, .. }) = Ethernet::parse(frame)
                    {
                        stations.learn(src, from, now);
                    }
                }
                _ => self.refused += 1,
            }
        }
        None
    }
}

impl Receive for VxlanReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        if self.filled.is_empty() {
            self.fill()?;
        }
        Ok(self.filled.lend(self.incoming.bytes(), take))
    }

    fn missed(&self) -> io::Result<u64> {
        Ok(self.drops.at(&dropped(self.sockets.receiving.as_fd())))
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sockets.receiving.as_fd())
    }

    fn devices(&self) -> Vec<BorrowedFd<'_>> {
        self.sockets.iter().chain([self.memory.as_fd()]).collect()
    }

    fn drain(&mut self, on: bool) -> bool {
        self.is_draining = on;
        self.arm(on)
    }

    fn arm(&mut self, _: bool) -> bool {
        // The descriptor does not signal messages that were received but not read yet.
        !self.filled.is_empty() || self.message.is_some() || self.read < self.count
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}

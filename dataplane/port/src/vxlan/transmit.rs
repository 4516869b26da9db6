//! The transmitting half of a VXLAN port.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use dray_wire::MacAddr;
use dray_wire::ethernet::ETHERNET_LEN;
use dray_wire::vxlan::{self, VXLAN_LEN};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::calls::{Name, Outgoing, Train};
use super::flow;
use super::memory::Limits;
use super::remotes::Learned;
use super::seconds;
use super::sockets::Sockets;
use super::stations::Stations;
use crate::lost::{Loss, Lost};
use crate::{BATCH_MAX, FRAME_LIMIT, Frame, Transmit};

/// Maximum number of datagrams that the kernel cuts a message into (`UDP_MAX_SEGMENTS`).
const DATAGRAMS_MAX: usize = 64;
/// Maximum length of a message: that of an IPv6 packet, less more than its headers.
const TRAIN_MAX: usize = 65_000;
/// Messages per system call.
const MESSAGES: usize = 256;

/// Destination of frames that go to all hosts of the list.
const ALL: u16 = u16::MAX;

/// Flow (8 bits) and destination (16 bits) of a frame of the batch, and its index in the batch
/// (8 bits). Sorted by that number, frames that can share a message are neighbours, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Route(u32);

impl Route {
    fn new(flow: u8, to: u16, index: usize) -> Self {
        Self(u32::from(flow) << 24 | u32::from(to) << 8 | index as u32)
    }

    fn index(self) -> usize {
        (self.0 & 0xff) as usize
    }

    fn to(self) -> u16 {
        (self.0 >> 8) as u16
    }

    fn flow(self) -> usize {
        (self.0 >> 24) as usize
    }

    fn is_with(self, other: Self) -> bool {
        self.0 >> 8 == other.0 >> 8
    }
}

const _: () = assert!(BATCH_MAX <= 256, "an index of 8 bits");

/// Contents of a message.
struct Loaded {
    flow: usize,
    /// Range of the host's frames in the sorted batch.
    frames: Range<usize>,
}

pub(super) struct VxlanTransmit {
    sockets: Arc<Sockets>,
    header: [u8; VXLAN_LEN],
    listed: Vec<Name>,
    learned: Learned,
    /// `None` if all stations are behind one host.
    stations: Option<Arc<Stations>>,
    limits: Limits,
    /// True while the kernel cuts messages into datagrams.
    gso: bool,
    /// Bytes of the messages.
    bytes: Box<[u8]>,
    trains: Vec<Train>,
    loaded: Vec<Loaded>,
    outgoing: Outgoing,
    flags: SendFlags,
    lost: Lost,
    /// By frame of the call: true if it did not reach a host; and true if that is so of any.
    failed: Box<[bool; BATCH_MAX]>,
    has_failed: bool,
}

impl VxlanTransmit {
    pub(super) fn new(
        sockets: Arc<Sockets>,
        vni: u32,
        gso: bool,
        limits: Limits,
        listed: &[SocketAddr],
        learned: Learned,
        stations: Option<Arc<Stations>>,
    ) -> Self {
        Self {
            sockets,
            header: vxlan::header(vni),
            listed: listed.iter().map(|remote| Name::from(*remote)).collect(),
            learned,
            stations,
            limits,
            gso,
            // Pages that are never touched take no memory.
            bytes: vec![0; BATCH_MAX * (VXLAN_LEN + FRAME_LIMIT)].into(),
            trains: Vec::with_capacity(MESSAGES),
            loaded: Vec::with_capacity(MESSAGES),
            outgoing: Outgoing::new(MESSAGES),
            flags: SendFlags::empty(),
            lost: Lost::new(),
            failed: Box::new([false; BATCH_MAX]),
            has_failed: false,
        }
    }

    /// Finds out where each frame goes.
    fn routes(&mut self, frames: &[Frame<'_>]) -> ArrayVec<Route, BATCH_MAX> {
        let now = if self.stations.is_some() { seconds() } else { 0 };
        let (flows, longest) = (self.sockets.transmitting.len() as u8, self.limits.longest);
        let mut routes = ArrayVec::new();
        for (index, frame) in frames.iter().enumerate() {
            let Some(head) = frame.first::<ETHERNET_LEN>().filter(|_| frame.len() <= longest)
            else {
                self.fail(index);
                continue;
            };
            let [a, b, c, d, e, f, ..] = head;
            let to = self
                .stations
                .as_ref()
                .and_then(|known| known.lookup(MacAddr([a, b, c, d, e, f]), now));
            routes.push(Route::new(flow::of(frame, flows), to.unwrap_or(ALL), index));
        }
        if !routes.is_sorted() {
            routes.sort_unstable();
        }
        routes
    }

    /// Puts frames into messages: those that follow each other on one route and have one length
    /// share a message, in which the last one may be shorter.
    fn load(&mut self, frames: &[Frame<'_>], routes: &[Route]) {
        self.trains.clear();
        self.loaded.clear();
        let count_max = if self.gso { DATAGRAMS_MAX } else { 1 };
        let (mut first, mut at) = (0, 0);
        while let Some(route) = routes.get(first) {
            let start = at;
            let size = VXLAN_LEN + frames[route.index()].len();
            let mut end = first;
            while let Some(next) = routes.get(end).filter(|next| next.is_with(*route)) {
                let len = VXLAN_LEN + frames[next.index()].len();
                let is_full = end - first == count_max || at - start + len > TRAIN_MAX;
                if end > first && (is_full || len > size) {
                    break;
                }
                let (header, body) = self.bytes[at..at + len].split_at_mut(VXLAN_LEN);
                header.copy_from_slice(&self.header);
                frames[next.index()].copy_into(body);
                at += len;
                end += 1;
                if len < size {
                    break;
                }
            }
            let size = if end - first > 1 { size as u16 } else { 0 };
            if !self.address(*route, start..at, size, first..end) {
                // The port knows no host yet.
                self.fail_all(&routes[first..end]);
            }
            first = end;
        }
    }

    /// Adds a message for each host that it goes to. Returns false if there is none.
    fn address(
        &mut self,
        route: Route,
        bytes: Range<usize>,
        size: u16,
        frames: Range<usize>,
    ) -> bool {
        let before = self.trains.len();
        match usize::from(route.to()).checked_sub(self.listed.len()) {
            _ if route.to() == ALL => {
                let train = |to: &Name| Train { bytes: bytes.clone(), size, to: *to };
                self.trains.extend(self.listed.iter().map(train));
            }
            None => {
                self.trains.push(Train { bytes, size, to: self.listed[usize::from(route.to())] });
            }
            Some(at) => {
                let to = self.learned.get(at);
                self.trains.extend(to.map(|to| Train { bytes, size, to: to.into() }));
            }
        }
        let loaded = |_| Loaded { flow: route.flow(), frames: frames.clone() };
        self.loaded.extend((before..self.trains.len()).map(loaded));
        self.trains.len() > before
    }

    /// Sends the messages. Returns the number of those that were sent or cannot be sent at all.
    fn send(&mut self, routes: &[Route]) -> usize {
        let mut sent = 0;
        while sent < self.trains.len() {
            let flow = self.loaded[sent].flow;
            let of_flow = self.loaded[sent..].iter().take_while(|loaded| loaded.flow == flow);
            let trains = &self.trains[sent..sent + of_flow.count()];
            let socket = self.sockets.transmitting[flow].as_fd();
            match self.outgoing.send(socket, &self.bytes, trains, self.flags) {
                Ok(count) => sent += count,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => break,
                    // The device on the way computes no checksums, and the kernel is older than
                    // 6.11.
                    Some(Errno::IO) if self.trains[sent].size > 0 => {
                        self.gso = false;
                        self.cut(sent);
                    }
                    // The message's frames are too long for the path, or there is no path at
                    // present.
                    _ => {
                        self.fail_all(&routes[self.loaded[sent].frames.clone()]);
                        sent += 1;
                    }
                },
            }
        }
        sent
    }

    /// Notes that the frame `index` of the call does not reach a host.
    fn fail(&mut self, index: usize) {
        (self.failed[index], self.has_failed) = (true, true);
    }

    fn fail_all(&mut self, routes: &[Route]) {
        routes.iter().for_each(|route| self.fail(route.index()));
    }

    /// Adds the frames that did not reach a host to those lost, if the call has taken them; returns
    /// how many it has taken.
    fn settle(&mut self, taken: usize) -> usize {
        if std::mem::take(&mut self.has_failed) {
            for (index, failed) in self.failed.iter_mut().enumerate() {
                if std::mem::take(failed) && index < taken {
                    self.lost.add(index, Loss::Undeliverable);
                }
            }
        }
        taken
    }

    /// Replaces a message by its datagrams.
    #[cold]
    fn cut(&mut self, at: usize) {
        let Train { bytes, size, to } = self.trains[at].clone();
        let Loaded { flow, frames } = &self.loaded[at];
        let (flow, frames) = (*flow, frames.clone());
        let starts = bytes.clone().step_by(usize::from(size));
        let trains = starts.map(|start| {
            let end = bytes.end.min(start + usize::from(size));
            Train { bytes: start..end, size: 0, to }
        });
        self.trains.splice(at..=at, trains);
        let loaded = frames.map(|frame| Loaded { flow, frames: frame..frame + 1 });
        self.loaded.splice(at..=at, loaded);
    }
}

impl Transmit for VxlanTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let frames = &frames[..frames.len().min(BATCH_MAX)];
        self.lost.begin();
        let routes = self.routes(frames);
        self.load(frames, &routes);
        let sent = self.send(&routes);
        if sent == self.trains.len() {
            return Ok(self.settle(frames.len()));
        }
        // A queue is full. Frames behind the last one that was sent can be tried again; those
        // before it would overtake it.
        let indices = |loaded: &Loaded| {
            routes[loaded.frames.clone()]
                .iter()
                .map(|route| route.index())
                .collect::<ArrayVec<_, BATCH_MAX>>()
        };
        let last = self.loaded[..sent].iter().flat_map(indices).max();
        let taken = last.map_or(0, |last| last + 1);
        for loaded in &self.loaded[sent..] {
            let indices = indices(loaded);
            indices.into_iter().for_each(|index| self.failed[index] = true);
        }
        self.has_failed = true;
        Ok(self.settle(taken))
    }

    fn frame_max(&self) -> usize {
        self.limits.frame_max
    }

    fn never_wait(&mut self) {
        self.flags = SendFlags::DONTWAIT;
    }

    fn lost(&self) -> &Lost {
        &self.lost
    }

    fn accepts(&self, frame: &Frame<'_>) -> bool {
        frame.len() >= ETHERNET_LEN
            && frame.len() <= self.limits.longest
            && frame.fits(self.limits.frame_max)
            && !frame.has_offload()
    }
}

//! `afxdp:INTERFACE`: AF_XDP sockets, which take frames from an interface before the kernel's
//! network stack sees them (Documentation/networking/af_xdp.rst).

mod absence;
mod deferral;
mod program;
mod receive;
mod ring;
mod socket;
mod sockets;
mod transmit;
mod umem;
mod uri;
mod vlan_tags;

use std::io;
use std::sync::{Arc, Weak};

use dray_netdev::Interface;
use dray_text::count;
use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX, TAG_LEN};

use crate::session::link::Link;
use crate::session::snapshot::PortSnapshot;
use crate::session::status::{LinkState, LinkStatus};
use crate::uri::failed::Failed;
use crate::uri::failed::refused;
use crate::{Port, Receive, Transmit};
use program::Program;
use receive::AfxdpReceive;
use socket::{Rings, Socket};
use transmit::AfxdpTransmit;
use umem::Umem;

pub use uri::{AfxdpUri, CopyMode};

impl AfxdpUri {
    /// Attaches the program and opens a socket for each queue.
    fn open_queues(&self) -> Result<Port, Failed> {
        let fail = |what| move |error: io::Error| (what, error);
        let interface = Interface::find(&self.interface).map_err(fail("interface index"))?;
        let interface = Arc::new(interface);
        let mtu = interface.mtu().map_err(fail("MTU"))?;
        if let Some(queues) = interface.queues()
            && self.queue + self.queues > queues
        {
            let what = format!("queues {} to {}", self.queue, self.queue + self.queues - 1);
            let queues = count(queues, "queue");
            let what = format!("{what}: the interface has {queues}, numbered from 0");
            return Err(("queue", io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let frame_max = FRAME_MAX.min(mtu + ETHERNET_LEN);
        // The kernel reserves the beginning of each chunk that it receives into for XDP programs.
        const HEADROOM: usize = 256;
        let parts = frame_max + TAG_LEN > self.chunk as usize - HEADROOM;

        let umem =
            Umem::get(self.umem.as_deref(), self.queues, self.chunk).map_err(fail("UMEM"))?;
        if let Some(node) = interface.numa_node() {
            // Without a choice of nodes, memory is where it would be anyway.
            let _ = umem.prefer_node(node);
        }
        let program = program::get(interface, self, sockets::is_attached);
        let program = program.map_err(fail("XDP program"))?;
        let mut opened = Queues::default();
        for queue in self.queue..self.queue + self.queues {
            let (socket, rings) = sockets::join(self, &umem, &program, queue, parts)?;
            let [to_receive, to_transmit] = socket.slot().new_chunks();
            let Rings { rx, fill, tx, completion } = rings;
            let receive = AfxdpReceive::new(socket.clone(), rx, fill, to_receive, self.wait);
            program.redirect(queue, &socket).map_err(fail("XDP program"))?;
            let transmit =
                AfxdpTransmit::new(socket.clone(), tx, completion, to_transmit, frame_max);
            opened.add(socket, receive, transmit);
        }
        opened.port(self)
    }

    /// Continues with the queues of another process.
    fn resume_queues(&self, snapshot: PortSnapshot) -> Result<Port, Failed> {
        let fail = |what| move |error: io::Error| (what, error);
        let (descriptors, frame_max) = snapshot.into_devices();
        let (chunks, rest) = (descriptors.len() / EACH, descriptors.len() % EACH);
        if chunks != self.queues as usize || rest != 0 {
            let what = format!("give {EACH} for each of {} queues", self.queues);
            return Err(refused(format!("there are {}; {what}", descriptors.len())));
        }
        let interface = Interface::find(&self.interface).map_err(fail("interface index"))?;
        let interface = Arc::new(interface);
        let (mut descriptors, mut shared) = (descriptors.into_iter(), None);
        let mut opened = Queues::default();
        for queue in self.queue..self.queue + self.queues {
            let mut next = || descriptors.next().expect("they were counted");
            let socket = next();
            let (of_umem, of_program) = ([next(), next()], [next(), next(), next()]);
            let (umem, program) = match shared.take() {
                Some(shared) => shared,
                None => {
                    let umem = Umem::resume(self.umem.as_deref(), self.chunk, of_umem);
                    let program =
                        program::resume(interface.clone(), self, of_program, sockets::is_attached);
                    (umem.map_err(fail("UMEM"))?, program.map_err(fail("XDP program"))?)
                }
            };
            let slot = umem.resume_slot(interface.index(), queue).map_err(fail("UMEM"))?;
            let (socket, rings) = Socket::resume(self, socket, slot, program.clone())?;
            let socket = sockets::add(socket);
            let Rings { rx, fill, tx, completion } = rings;
            let receive = AfxdpReceive::resume(socket.clone(), rx, fill, self.wait);
            let transmit = AfxdpTransmit::resume(socket.clone(), tx, completion, frame_max);
            opened.add(socket, receive, transmit);
            shared = Some((umem, program));
        }
        opened.port(self)
    }

    /// Returns the properties of the port, for people.
    fn features(&self, program: &Program, copies: &str) -> Vec<String> {
        let mut features = vec![format!("xdp {}", program.mode()), copies.to_owned()];
        features.extend(self.wakeup.then(|| "need wakeup".to_owned()));
        features.extend(self.busy_poll.map(|time| format!("busy polling for {time} us")));
        features.extend(self.defer.map(|time| format!("interrupts deferred by {time} us")));
        if program.carries_partial_checksums() {
            features.push("checksums of local kernels completed".to_owned());
        }
        if program.interface().takes_vlan_tags_off().unwrap_or(false) {
            features.push("VLAN tags taken off".to_owned());
        }
        features
    }
}

/// Number of descriptors with which another process continues a queue: of its socket, of the UMEM
/// and its chunks, and of the program, its map and what was changed for it.
const EACH: usize = 6;

/// Queues of a port.
#[derive(Default)]
struct Queues {
    rx: Vec<Box<dyn Receive>>,
    tx: Vec<Box<dyn Transmit>>,
    sockets: Vec<Arc<Socket>>,
}

impl Queues {
    fn add(&mut self, socket: Arc<Socket>, receive: AfxdpReceive, transmit: AfxdpTransmit) {
        self.rx.push(Box::new(receive));
        self.tx.push(Box::new(transmit));
        self.sockets.push(socket);
    }

    fn port(self, uri: &AfxdpUri) -> Result<Port, Failed> {
        let Self { rx, tx, sockets } = self;
        let last = sockets.last().expect("at least one queue");
        let is_zero_copy = last.is_zero_copy().map_err(|error| ("XDP_OPTIONS", error))?;
        let copies = if is_zero_copy { "zero copy" } else { "copy" };
        let features = uri.features(last.program(), copies);
        let sockets = sockets.iter().map(Arc::downgrade).collect();
        Ok(Port { rx, tx, link: Some(Arc::new(Opened { features, sockets })) })
    }
}

/// Link of an open port: the properties that the kernel granted, and the sockets.
struct Opened {
    features: Vec<String>,
    sockets: Vec<Weak<Socket>>,
}

impl Link for Opened {
    fn status(&self) -> LinkStatus {
        let mut sockets = self.sockets.iter().filter_map(Weak::upgrade);
        let mut status = LinkStatus { features: self.features.clone(), ..LinkStatus::default() };
        if sockets.any(|socket| socket.is_gone()) {
            status.ended("the interface was removed");
        } else {
            status.state = LinkState::Running;
        }
        status
    }

    fn is_down(&self) -> bool {
        let socket = self.sockets.iter().find_map(Weak::upgrade);
        socket.is_some_and(|socket| socket.interface().is_down())
    }
}

//! `vhost:PATH`: the back end of vhost-user. A driver (QEMU, DPDK's virtio-user, our own
//! [`virtio`](crate::virtio) port) shares its memory over the Unix socket at `PATH`; the port lends
//! the frames that the driver transmits and copies other frames into the buffers that the driver
//! posts. The messages are those of QEMU's `docs/interop/vhost-user.rst`; rings and header are
//! those of Virtio 1.3, sections 2.7, 2.8 and 5.1.6. The [`virtio`](crate::virtio) port has an
//! example.
//!
//! * `queue`: one virtqueue, and moving frames through it.
//! * `device`: all virtqueues, shared by data threads and control thread.
//! * `backend`: the effect of the driver's messages on them.
//! * `message`: checks of a message before it is read.
//! * `control`: the session with a driver.
//! * `early_enable`: a message that QEMU sends before the feature negotiation.

mod backend;
mod control;
mod device;
mod early_enable;
mod message;
mod queue;

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use dray_socket::{Access, SocketName};
use rustix::net::SocketType;

use crate::ends::limits::{MemoryLimits, Rates};
use crate::ends::pairs;
use crate::session::connection::Connection;
use crate::session::passed;
use crate::session::peers::{PeerSource, Peers};
use crate::session::snapshot::{PortSnapshot, Resumed, Resumption};
use crate::session::unix::{parse_access, parse_name};
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::{Failed, refused};
use crate::uri::query::{Query, UriError, write_query};
use crate::uri::scheme::{Claim, Listening, Scheme, Socket};
use crate::{OpenError, Port, Wait};

use device::Device;

/// Name of a vhost port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUri {
    /// The Unix socket.
    pub socket: SocketName,
    /// Number of virtqueue pairs, 1 to 16.
    pub queues: u16,
    /// True to connect to a socket on which the driver listens, instead of listening for the
    /// driver.
    pub client: bool,
    /// Limits on the memory that a driver may share.
    pub memory: MemoryLimits,
    /// True to offer offloads to a driver, for a user that handles them.
    pub offload: bool,
    /// Rights of the socket's file, if the port listens.
    pub access: Access,
    /// How to wait for frames.
    pub wait: Wait,
}

impl VhostUri {
    /// Returns a port that listens at `path`, with defaults for everything else.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            socket: path.into().into(),
            queues: 1,
            client: false,
            memory: MemoryLimits::default(),
            offload: true,
            access: Access::default(),
            wait: Wait::Block,
        }
    }

    /// Like [`PortUri::open`](crate::PortUri::open), for the drivers at the other ends of
    /// `streams`, one after the other; the path is ignored. Fuzzing has no time to connect.
    #[doc(hidden)]
    pub fn open_over(&self, streams: Vec<UnixStream>) -> Result<Port, OpenError> {
        self.try_open(Peers::connected(streams), None, self.offload)
            .map_err(|(what, error)| OpenError::new(self, what, error))
    }

    fn try_open(
        &self,
        peers: Peers,
        mut resumed: Option<Resumed>,
        offloads: bool,
    ) -> Result<Port, Failed> {
        let wake = ControlWake::new().map_err(|error| ("eventfd", error))?;
        let Self { queues, memory, .. } = *self;
        let device = Arc::new(Device::new(queues, memory, offloads, &wake)?);
        let session = {
            let (device, mut rates) = (device.clone(), Rates::default());
            move |stream, control: &_| {
                control::session(&device, stream, control, &mut rates, resumed.take())
            }
        };
        let connection = Connection::new(peers, wake, session)?;
        Ok(pairs::port(device, connection, self.wait))
    }
}

impl Scheme for VhostUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let client = query.flag("client", false)?;
        let socket = parse_name("vhost", body, query)?;
        Ok(Self {
            queues: query.queues()?,
            client,
            memory: MemoryLimits::parse(query)?,
            offload: query.flag("offload", true)?,
            access: parse_access(query, &socket, !client)?,
            socket,
            wait: Wait::parse(query)?,
        })
    }

    /// Starts to listen or connect. The driver may connect at any time, and reconnect.
    fn open(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        self.try_open(Peers::new(&self.socket, socket.and_then(Socket::own))?, None, false)
    }

    fn open_offloading(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        self.try_open(Peers::new(&self.socket, socket.and_then(Socket::own))?, None, self.offload)
    }

    /// The name of the peer's socket in a directory is that in the path.
    fn open_with(&self, descriptors: Vec<OwnedFd>) -> Result<Port, Failed> {
        let directory = self.client.then_some(&self.socket);
        let peers = passed::check(descriptors, SocketType::STREAM, directory)?;
        self.try_open(peers, None, self.offload)
    }

    fn resume(
        &self,
        snapshot: PortSnapshot,
        offloads: bool,
    ) -> Result<(Port, Option<Resumption>), Failed> {
        let mut parts = snapshot.into_parts().map_err(refused)?;
        let resumption = parts.resumption();
        let (resumption, resumed) = resumption.unzip();
        let mut peers = passed::resume(parts, &self.socket, SocketType::STREAM, self.client)?;
        if self.client {
            let socket = || PeerSource::Socket(self.socket.clone(), SocketType::STREAM);
            peers.source.get_or_insert_with(socket);
        }
        let resumed = resumed.filter(|_| !peers.first.is_empty());
        Ok((self.try_open(peers, resumed, offloads && self.offload)?, resumption))
    }

    fn prepare(&self) -> Result<Vec<OwnedFd>, Failed> {
        passed::prepare(&self.socket, SocketType::STREAM, self.client)
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn peer(&self) -> Option<String> {
        Some(format!("a driver at {}", self.socket))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn socket(&self) -> Option<Listening<'_>> {
        let Self { socket: name, access, client, .. } = self;
        (!client).then_some(Listening { name, kind: SocketType::STREAM, access })
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Socket(&self.socket, 0))
    }
}

impl fmt::Display for VhostUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vhost:{}", self.socket)?;
        let mut pairs = Vec::new();
        if self.queues != 1 {
            pairs.push(("queues", self.queues.to_string()));
        }
        if self.client {
            pairs.push(("client", "1".to_owned()));
        }
        pairs.extend(self.memory.pairs());
        if !self.offload {
            pairs.push(("offload", "0".to_owned()));
        }
        pairs.extend(self.access.pairs());
        pairs.extend(self.wait.pair());
        write_query(f, pairs)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use tempfile::TempDir;

    use super::VhostUri;
    use crate::{Frame, Port, PortUri, Receive, Transmit, scratch};

    /// `GET_FEATURES`, and the length of its reply.
    const MESSAGE: [u32; 3] = [1, 1, 0];
    const REPLY: usize = 20;

    #[test]
    fn endless_messages_are_rate_limited() {
        let (ours, driver) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let port = VhostUri::new("nowhere").open_over(vec![ours]).unwrap();
        std::thread::scope(|scope| {
            let mut talks = &driver;
            scope.spawn(move || {
                let message = MESSAGE.map(u32::to_ne_bytes);
                while talks.write_all(message.as_flattened()).is_ok() {}
            });
            let mut replies = 0;
            while replies < 1500 {
                (&driver).read_exact(&mut [0; REPLY]).unwrap();
                replies += 1;
            }
            // A burst of 1024, and then one per millisecond.
            assert!(start.elapsed() > Duration::from_millis(450), "{:?}", start.elapsed());
            driver.shutdown(std::net::Shutdown::Both).unwrap();
        });
        // Closing does not wait for the messages that are left.
        drop(port);
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn continued_port_offers_offloads_only_to_user_that_handles_them() {
        for handles in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let uri: PortUri = format!("vhost:{}", path.display()).parse().unwrap();
            let before = uri.open().unwrap();
            let link = before.link.as_ref().unwrap();
            let mut frozen = link.freeze(Duration::from_secs(10)).unwrap().unwrap();
            let snapshot = frozen.take_snapshot();
            let resumed =
                if handles { uri.resume_offloading(snapshot) } else { uri.resume(snapshot) };
            let (_port, resumption) = resumed.unwrap();
            assert!(resumption.is_none(), "there is no driver");
            let mut driver = UnixStream::connect(&path).unwrap();
            driver.write_all(MESSAGE.map(u32::to_ne_bytes).as_flattened()).unwrap();
            let mut reply = [0; REPLY];
            driver.read_exact(&mut reply).unwrap();
            let has_checksum = reply[REPLY - 8] & 1 != 0;
            assert_eq!(has_checksum, handles);
        }
    }

    /// Transmits 1500-byte frames that differ in their first 64 bytes only, as a sender's do. The
    /// receiving end overwrites every buffer after reading it.
    fn exchange_and_corrupt(from: &mut dyn Transmit, to: &mut dyn Receive) {
        let mut room = scratch();
        for number in 0..200u8 {
            let sent = [[number; 64].to_vec(), vec![7; 1436]].concat();
            while from.transmit(&[Frame::from(&sent[..])]).unwrap() == 0 {
                sleep(Duration::from_millis(1));
            }
            let received = to.receive(&mut |lent| {
                let [frame] = lent else { panic!("{} frames", lent.len()) };
                assert!(frame.bytes(&mut room) == sent, "frame {number}");
                let [_, body] = frame.parts(0..frame.len());
                assert!(body.len == sent.len(), "it lies in one buffer");
                // SAFETY: the buffer is mapped for writing while the frame is lent, and its bytes
                // are shared, so no reference to them exists.
                unsafe { body.start.write_bytes(0xee, body.len) };
                1
            });
            assert_eq!(received.unwrap(), 1);
        }
    }

    /// Opens a back end, and a front end with these keys that connects to it.
    fn both_ends(keys: &str) -> (TempDir, Port, Port) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let open = |uri: String| uri.parse::<PortUri>().unwrap().open().unwrap();
        let back = open(format!("vhost:{}?wait=poll", socket.display()));
        let front = open(format!("virtio:{}?{keys}&hugepages=0", socket.display()));
        (folder, back, front)
    }

    #[test]
    fn every_byte_of_a_reused_buffer_is_written() {
        for keys in ["packed=0&size=8", "packed=1&size=8"] {
            let (_folder, mut back, mut front) = both_ends(keys);
            exchange_and_corrupt(&mut *front.tx[0], &mut *back.rx[0]);
            exchange_and_corrupt(&mut *back.tx[0], &mut *front.rx[0]);
        }
    }

    #[test]
    fn untaken_long_frames_stay_in_order() {
        for keys in ["packed=0", "packed=1"] {
            let (_folder, mut back, mut front) = both_ends(keys);
            let tx = &mut front.tx[0];
            let frames: Vec<Vec<u8>> = (0..40).map(|number| vec![number; 9000]).collect();
            let frames: Vec<_> = frames.iter().map(|bytes| Frame::from(&bytes[..])).collect();
            while tx.transmit(&frames[..1]).unwrap() == 0 {
                sleep(Duration::from_millis(1));
            }
            assert_eq!(tx.transmit(&frames[1..]).unwrap(), 39);

            let mut room = scratch();
            let mut next = 0;
            let mut receive = |rx: &mut dyn Receive, most: usize| {
                let mut take = |lent: &[Frame<'_>]| {
                    for (frame, number) in lent.iter().zip(next..) {
                        assert!(frame.len() == 9000 && frame.bytes(&mut room) == [number; 9000]);
                    }
                    next += most.min(lent.len()) as u8;
                    most
                };
                rx.receive(&mut take).unwrap()
            };
            let rx = &mut *back.rx[0];
            let mut lent = 0;
            while lent == 0 {
                lent = receive(rx, 3);
            }
            assert_eq!(lent, 32);
            assert_eq!(receive(rx, usize::MAX), 32);
            assert_eq!(receive(rx, 0), 5);
            assert_eq!(receive(rx, usize::MAX), 5);
            assert_eq!(receive(rx, usize::MAX), 0);
        }
    }
}

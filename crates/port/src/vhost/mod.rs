//! `vhost:PATH`: the back end of vhost-user. A driver (QEMU, DPDK's virtio-user, our own
//! [`virtio`](crate::virtio) port) shares its memory over the Unix socket at `PATH`; the port lends
//! the frames that it transmits and copies others into the buffers that it posts.
//!
//! * `queue`: one virtqueue, and moving frames through it.
//! * `device`: all of them, shared by data threads and control thread.
//! * `backend`: what the driver's messages do to them.
//! * `message`: what can be said of a message before it is read.
//! * `control`: the conversation in which the messages come.
//! * `early`: a message that comes before its time.

mod backend;
mod control;
mod device;
mod early;
mod message;
mod queue;

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use crate::attention::Attention;
use crate::connection::Connection;
use crate::pairs;
use crate::query::{Query, UriError, write_query};
use crate::unix::parse_path;
use crate::{OpenError, Port, Wait};

use device::Device;

/// A vhost port's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUri {
    /// The Unix socket.
    pub path: PathBuf,
    /// Pairs of virtqueues, 1 to 16.
    pub queues: u16,
    /// Connect to a socket on which the driver listens, instead of listening for it.
    pub client: bool,
    /// How to wait for frames.
    pub wait: Wait,
}

impl VhostUri {
    pub(crate) fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        Ok(Self {
            path: parse_path("vhost", body, query)?,
            queues: query.queues()?,
            client: query.flag("client", false)?,
            wait: Wait::parse(query)?,
        })
    }

    /// Listens, or begins to connect; the driver may come at any time, and come back.
    pub fn open(&self) -> Result<Port, OpenError> {
        self.try_open(None).map_err(|(what, error)| OpenError::new(self, what, error))
    }

    /// As [`open`](Self::open), for the one driver at the other end of `stream`; the path means
    /// nothing. Fuzzing has no time to connect.
    #[doc(hidden)]
    pub fn open_over(&self, stream: UnixStream) -> Result<Port, OpenError> {
        self.try_open(Some(stream)).map_err(|(what, error)| OpenError::new(self, what, error))
    }

    fn try_open(&self, stream: Option<UnixStream>) -> Result<Port, (&'static str, io::Error)> {
        let attention = Attention::new().map_err(|error| ("eventfd", error))?;
        let device = Arc::new(Device::new(self.queues, &attention)?);
        let converse = {
            let device = device.clone();
            move |stream, control: &_| control::converse(&device, stream, control)
        };
        let connection = match stream {
            Some(stream) => Connection::over(stream, attention, converse)?,
            None => Connection::open(&self.path, self.client, attention, converse)?,
        };
        Ok(pairs::port(device, connection, self.wait))
    }
}

impl fmt::Display for VhostUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vhost:{}", self.path.display())?;
        let mut pairs = Vec::new();
        if self.queues != 1 {
            pairs.push(("queues", self.queues.to_string()));
        }
        if self.client {
            pairs.push(("client", "1".to_owned()));
        }
        pairs.extend(self.wait.pair());
        write_query(f, pairs)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use crate::{Frame, PortUri, Receive, scratch};

    #[test]
    fn long_frames_that_are_not_taken_at_once_come_again_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        for packed in [0, 1] {
            let open = |uri: String| uri.parse::<PortUri>().unwrap().open().unwrap();
            let mut back = open(format!("vhost:{}?wait=poll", socket.display()));
            let mut front =
                open(format!("virtio:{}?packed={packed}&hugepages=0", socket.display()));
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

//! A sender and a receiver at one port, each on a thread of its own.

use std::cell::RefCell;
use std::panic;
use std::thread;

use dray_port::{Port, PortUri};

use crate::links::OpenPort;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::{DuplexJob, ReceiveReport, RoleError, SendReport, Signal};

/// Both roles, with their port open.
pub struct Duplex {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

impl Duplex {
    /// Opens the port: the sender gets its transmitting half, the receiver its receiving half.
    pub fn open(job: DuplexJob, open: &OpenPort<'_>) -> Result<Self, RoleError> {
        let DuplexJob { send, mut receive } = job;
        // A switch learns the station from the frames that it sends, for which the port's
        // transmitting half is needed.
        receive.announce.clear();
        let opened: RefCell<Option<Port>> = RefCell::default();
        let half = |uri: &PortUri| {
            let mut opened = opened.borrow_mut();
            Ok(match opened.take() {
                None => {
                    let Port { rx, tx, link } = open(uri)?;
                    *opened = Some(Port { rx, tx: Vec::new(), link: link.clone() });
                    Port { rx: Vec::new(), tx, link }
                }
                Some(rest) => rest,
            })
        };
        let sender = Sender::open(send, &half)?;
        let receiver = Receiver::open(&receive, &half)?;
        Ok(Self { sender, receiver })
    }

    /// Runs both roles: the sender until its job is done, which `on_sent` gets to know, the
    /// receiver until `signal` ends it. If one fails, the other ends too.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sent: impl Fn(SendReport) + Sync,
    ) -> Result<ReceiveReport, RoleError> {
        let Self { sender, receiver } = self;
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let sent = sender.run(signal, None).inspect_err(|_| signal.stop())?;
                on_sent(sent);
                Ok(())
            });
            let received = receiver.run(signal, None).inspect_err(|_| signal.stop());
            sending.join().unwrap_or_else(|cause| panic::resume_unwind(cause)).and(received)
        })
    }
}

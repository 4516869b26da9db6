//! The session with a driver.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::DupFlags;
use vhost::vhost_user::{BackendReqHandler, Error};

use super::backend::Backend;
use super::device::{Device, Session};
use super::early_enable;
use super::message::{self, Header, Input};
use crate::ends::limits::Rates;
use crate::ends::pairs::Pairs;
use crate::lock::lock;
use crate::session::connection::{Control, End, Woken};
use crate::session::snapshot::{ReplayError, Resumed};

/// Time within which a driver must send its first message.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// Time within which a message must be complete, and earlier replies must be read.
const MESSAGE: Duration = Duration::from_secs(1);
/// Interval at which an incomplete message is checked. Nearly all messages arrive complete.
const INCOMPLETE_CHECK: Duration = Duration::from_millis(1);

/// Interval at which the connection to a driver is checked while its messages exceed the rate.
const THROTTLED_CHECK: Duration = Duration::from_millis(20);

/// Serves one driver until it disconnects, violates the protocol or the port is closed. A driver
/// that sends too many messages has to wait; this delays no other driver.
pub(super) fn session(
    device: &Arc<Device>,
    stream: UnixStream,
    control: &Control,
    rates: &mut Rates,
    resumed: Option<Resumed>,
) -> End {
    // A connection counts as a message.
    while let Err(wait) = rates.take(false) {
        control.wait(None, Some(wait));
        if control.is_stopping() {
            return End::Stop;
        }
    }
    let backend = Arc::new(Mutex::new(Backend::new(device.clone())));
    let session: Arc<Mutex<dyn Session>> = backend.clone();
    device.connect(Arc::downgrade(&session));
    let mut limit = Some(FIRST_MESSAGE);
    let handler = match resumed {
        None => BackendReqHandler::from_stream(stream, backend.clone()),
        Some(resumed) => match resume(&backend, &stream, resumed) {
            Ok(Some(handler)) => {
                let features = lock(&backend).negotiated();
                control.change(|status| status.features = features);
                limit = None;
                handler
            }
            Ok(None) => return End::Stop,
            Err(why) => return End::Refused(why),
        },
    };
    let (incomplete, pause) = (None, None);
    let driver = Driver { device, control, rates, backend, handler, limit, incomplete, pause };
    driver.serve()
}

/// A connected driver, whose messages are handled one by one.
struct Driver<'c> {
    device: &'c Device,
    control: &'c Control,
    rates: &'c mut Rates,
    backend: Arc<Mutex<Backend>>,
    handler: Handler,
    /// Time limit of the first message; `None` after it.
    limit: Option<Duration>,
    /// Time since which the message is incomplete, or there is no room for a reply.
    incomplete: Option<Instant>,
    /// Time for which the next message has to wait because of its rate.
    pause: Option<Duration>,
}

impl Driver<'_> {
    fn serve(mut self) -> End {
        loop {
            let woken = self.wait();
            let _gate = self.control.gate();
            if self.control.is_stopping() {
                return End::Stop;
            }
            if let Some(failure) = self.device.failure() {
                return End::Refused(failure.to_string());
            }
            let handled = match woken {
                Woken::ControlWake => Ok(()),
                Woken::Timeout if self.incomplete.is_some() || self.pause.is_some() => self.read(),
                Woken::Timeout if self.limit.is_none() => Ok(()),
                Woken::Timeout => Err(End::Refused(format!("no message for {FIRST_MESSAGE:?}"))),
                Woken::Readable => self.read(),
            };
            if let Err(end) = handled {
                return end;
            }
        }
    }

    /// Waits for the next message, or until a waiting message may be read.
    fn wait(&self) -> Woken {
        match (self.pause, self.incomplete) {
            // With an unread message, the socket is always readable.
            (Some(pause), _) => self.control.wait(None, Some(pause.min(THROTTLED_CHECK))),
            (None, Some(_)) => self.control.wait(None, Some(INCOMPLETE_CHECK)),
            (None, None) => self.control.wait(Some(socket(&self.handler)), self.limit),
        }
    }

    /// Reads and handles a message if it is complete and within the rate limit.
    fn read(&mut self) -> Result<(), End> {
        self.limit = None;
        let header = match message::peek(socket(&self.handler)) {
            Ok(Input::Message(header)) => header,
            Ok(Input::HungUp) => return Err(End::Left),
            Ok(Input::Empty) => return Ok(()),
            Ok(Input::Incomplete(what)) => {
                let since = self.incomplete.get_or_insert_with(Instant::now);
                return match since.elapsed() > MESSAGE {
                    true => Err(End::Refused(format!("{what} after {MESSAGE:?}"))),
                    false => Ok(()),
                };
            }
            Err(why) => return Err(End::Refused(why)),
        };
        self.incomplete = None;
        self.pause = self.rates.take(header.changes_memory()).err();
        match self.pause {
            None => self.handle(&header),
            Some(_) if message::has_hung_up(socket(&self.handler)) => Err(End::Left),
            Some(_) => Ok(()),
        }
    }

    fn handle(&mut self, header: &Header) -> Result<(), End> {
        self.control.changes();
        let result = handle(&mut self.handler, &self.backend);
        let mut backend = lock(&self.backend);
        let refusal = backend.refusal.take();
        match result {
            Ok(()) => {
                let features = backend.negotiated();
                self.control.change(|status| status.features = features);
                Ok(())
            }
            Err(Error::Disconnected | Error::SocketBroken(_)) => Err(End::Left),
            Err(error) => Err(End::Refused(refusal.unwrap_or_else(|| describe(header, &error)))),
        }
    }
}

type Handler = BackendReqHandler<Mutex<Backend>>;

fn socket(handler: &Handler) -> BorrowedFd<'_> {
    // SAFETY: the handler owns the socket.
    unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) }
}

/// Handles the message that has arrived.
fn handle(handler: &mut Handler, backend: &Mutex<Backend>) -> Result<(), Error> {
    // The request handler locks the back end as well.
    let is_handled = early_enable::handle(socket(handler), &mut lock(backend))?;
    if is_handled { Ok(()) } else { handler.handle_request() }
}

/// Continues another process's session with the driver at `stream`; `None` if that process
/// continues it itself.
fn resume(
    backend: &Arc<Mutex<Backend>>,
    stream: &UnixStream,
    resumed: Resumed,
) -> Result<Option<Handler>, String> {
    let broken = |error: io::Error| error.to_string();
    // The driver's messages are replayed over a connection within this process.
    let (ours, replay) = UnixStream::pair().map_err(broken)?;
    let mut handler = BackendReqHandler::from_stream(ours, backend.clone());
    let set_progress = |progress: &_| lock(backend).set_progress(progress);
    let is_started = resumed.replay(set_progress, |message| {
        message.send(&replay).map_err(broken)?;
        let header = match message::peek(socket(&handler))? {
            Input::Message(header) => header,
            Input::Incomplete(what) => return Err(what.into()),
            Input::Empty | Input::HungUp => return Err("an empty message".to_owned().into()),
        };
        handle(&mut handler, backend).map_err(|error| match lock(backend).refusal.take() {
            Some(refusal) => ReplayError::Peer(refusal),
            None => describe(&header, &error).into(),
        })
    })?;
    if !is_started {
        return Ok(None);
    }
    // SAFETY: the descriptor stays the handler's; only the socket that it refers to is replaced.
    let mut socket = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(handler.as_raw_fd()) });
    rustix::io::dup3(stream, &mut socket, DupFlags::CLOEXEC).map_err(|error| error.to_string())?;
    lock(backend).call_all();
    Ok(Some(handler))
}

/// Describes why the `vhost` crate refused a message.
fn describe(header: &Header, error: &Error) -> String {
    match error {
        Error::InvalidMessage | Error::InvalidParam | Error::IncorrectFds => header.explain(),
        Error::InactiveFeature(_) | Error::InactiveOperation(_) => header.not_negotiated(),
        error => format!("{header}: {error}"),
    }
}

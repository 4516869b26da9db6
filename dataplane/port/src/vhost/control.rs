//! The session with a driver.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::DupFlags;
use vhost::vhost_user::{BackendReqHandler, Error};

use super::backend::Backend;
use super::device::{Device, Session};
use super::early_enable;
use super::message::{self, Header, Input};
use crate::ends::limits::Rates;
use crate::ends::pairs::Pairs;
use crate::session::connection::{Control, End, Woken};
use crate::session::snapshot::{ReplayError, Resumed};

/// Time within which a driver must send its first message.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// Time within which a message must be complete, and earlier replies be read.
const MESSAGE: Duration = Duration::from_secs(1);
/// How often an incomplete message is checked. Nearly always all of it is there at once.
const AGAIN: Duration = Duration::from_millis(1);

/// How often a driver whose messages are held back is checked: it may have disconnected.
const REST: Duration = Duration::from_millis(20);

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
    let (incomplete, rest) = (None, None);
    let driver = Driver { device, control, rates, backend, handler, limit, incomplete, rest };
    driver.serve()
}

/// A connected driver, whose messages are handled one by one.
struct Driver<'c> {
    device: &'c Device,
    control: &'c Control,
    rates: &'c mut Rates,
    backend: Arc<Mutex<Backend>>,
    handler: Handler,
    /// Time within which the first message must come; `None` once it has.
    limit: Option<Duration>,
    /// Time since which a part of a message, or room for a reply, has been missing.
    incomplete: Option<Instant>,
    /// Time that the next message has to wait.
    rest: Option<Duration>,
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
                Woken::Timeout if self.incomplete.is_some() || self.rest.is_some() => self.read(),
                Woken::Timeout if self.limit.is_none() => Ok(()),
                Woken::Timeout => Err(End::Refused(format!("no message for {FIRST_MESSAGE:?}"))),
                Woken::Readable => self.read(),
            };
            if let Err(end) = handled {
                return end;
            }
        }
    }

    /// Waits for the next message, or until one that is there may be read.
    fn wait(&self) -> Woken {
        match (self.rest, self.incomplete) {
            // The unread message would end every wait for the socket.
            (Some(rest), _) => self.control.wait(None, Some(rest.min(REST))),
            (None, Some(_)) => self.control.wait(None, Some(AGAIN)),
            (None, None) => self.control.wait(Some(socket(&self.handler)), self.limit),
        }
    }

    /// Reads and handles a message if all of it is there, and the driver has not sent too many.
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
        self.rest = self.rates.take(header.changes_memory()).err();
        match self.rest {
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
            Err(error) => Err(End::Refused(refusal.unwrap_or_else(|| why(header, &error)))),
        }
    }
}

type Handler = BackendReqHandler<Mutex<Backend>>;

fn socket(handler: &Handler) -> BorrowedFd<'_> {
    // SAFETY: the handler owns the socket.
    unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) }
}

fn lock(backend: &Mutex<Backend>) -> MutexGuard<'_, Backend> {
    backend.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles the message that has arrived.
fn handle(handler: &mut Handler, backend: &Mutex<Backend>) -> Result<(), Error> {
    // The request handler locks the back end as well.
    let early = early_enable::handle(socket(handler), &mut lock(backend));
    match early {
        Ok(false) => handler.handle_request(),
        done => done.map(drop),
    }
}

/// Continues a session with the driver at `stream` that another process has begun. `None` if that
/// process goes on itself.
fn resume(
    backend: &Arc<Mutex<Backend>>,
    stream: &UnixStream,
    resumed: Resumed,
) -> Result<Option<Handler>, String> {
    let broken = |error: io::Error| error.to_string();
    // The driver's messages are sent again, over a connection of our own.
    let (ours, says) = UnixStream::pair().map_err(broken)?;
    let mut handler = BackendReqHandler::from_stream(ours, backend.clone());
    let stand = |progress: &_| lock(backend).set_progress(progress);
    let goes_on = resumed.replay(stand, |said| {
        said.send(&says).map_err(broken)?;
        let header = match message::peek(socket(&handler))? {
            Input::Message(header) => header,
            Input::Incomplete(what) => return Err(what.into()),
            Input::Empty | Input::HungUp => return Err("an empty message".to_owned().into()),
        };
        handle(&mut handler, backend).map_err(|error| match lock(backend).refusal.take() {
            Some(refusal) => ReplayError::Peer(refusal),
            None => why(&header, &error).into(),
        })
    })?;
    if !goes_on {
        return Ok(None);
    }
    // SAFETY: the descriptor is the handler's, which goes on to own what it refers to from now on.
    let mut socket = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(handler.as_raw_fd()) });
    rustix::io::dup3(stream, &mut socket, DupFlags::CLOEXEC).map_err(|error| error.to_string())?;
    lock(backend).call_all();
    Ok(Some(handler))
}

/// Describes why the `vhost` crate refused a message.
fn why(header: &Header, error: &Error) -> String {
    match error {
        Error::InvalidMessage | Error::InvalidParam | Error::IncorrectFds => header.explain(),
        Error::InactiveFeature(_) | Error::InactiveOperation(_) => header.not_negotiated(),
        error => format!("{header}: {error}"),
    }
}

//! The session with a driver.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vhost::vhost_user::{BackendReqHandler, Error};

use super::backend::Backend;
use super::device::Device;
use super::early;
use super::message::{self, Header, Look};
use crate::connection::{Control, End, Woken};
use crate::limits::Rates;
use crate::pairs::Pairs;

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
pub(super) fn converse(
    device: &Arc<Device>,
    stream: UnixStream,
    control: &Control,
    rates: &mut Rates,
) -> End {
    // A connection counts as a message.
    while let Err(wait) = rates.take(false) {
        control.wait(None, Some(wait));
        if control.is_stopping() {
            return End::Stop;
        }
    }
    let backend = Arc::new(Mutex::new(Backend::new(device.clone())));
    let mut handler = BackendReqHandler::from_stream(stream, backend.clone());
    let mut limit = Some(FIRST_MESSAGE);
    // Time since which a part of a message, or room for a reply, has been missing.
    let mut incomplete: Option<Instant> = None;
    // Time that the next message has to wait.
    let mut rest: Option<Duration> = None;
    loop {
        // SAFETY: the handler owns the socket and outlives this borrow.
        let socket = unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) };
        let woken = match (rest, incomplete) {
            // The unread message would end every wait for the socket.
            (Some(rest), _) => control.wait(None, Some(rest.min(REST))),
            (None, Some(_)) => control.wait(None, Some(AGAIN)),
            (None, None) => control.wait(Some(socket), limit),
        };
        if control.is_stopping() {
            return End::Stop;
        }
        if let Some(failure) = device.failure() {
            return End::Refused(failure.to_string());
        }
        match woken {
            Woken::Attention => continue,
            Woken::Timeout if incomplete.is_some() || rest.is_some() => {}
            Woken::Timeout if limit.is_none() => continue,
            Woken::Timeout => return End::Refused(format!("no message for {FIRST_MESSAGE:?}")),
            Woken::Readable => limit = None,
        }
        let header = match message::look(socket) {
            Ok(Look::Whole(header)) => header,
            Ok(Look::HungUp) => return End::Left,
            Ok(Look::Nothing) => continue,
            Ok(Look::Later(what)) => {
                if incomplete.get_or_insert_with(Instant::now).elapsed() > MESSAGE {
                    return End::Refused(format!("{what} after {MESSAGE:?}"));
                }
                continue;
            }
            Err(why) => return End::Refused(why),
        };
        incomplete = None;
        rest = rates.take(header.changes_memory()).err();
        if rest.is_some() {
            if message::has_hung_up(socket) {
                return End::Left;
            }
            continue;
        }
        let lock = || backend.lock().unwrap_or_else(PoisonError::into_inner);
        let early = early::enable(socket, &mut lock());
        let result = match early {
            Ok(false) => handler.handle_request(),
            done => done.map(drop),
        };
        let mut backend = lock();
        let refusal = backend.refusal.take();
        match result {
            Ok(()) => {
                let features = backend.negotiated();
                control.change(|status| status.features = features);
            }
            Err(Error::Disconnected | Error::SocketBroken(_)) => return End::Left,
            Err(error) => return End::Refused(refusal.unwrap_or_else(|| why(&header, &error))),
        }
    }
}

/// Describes why the `vhost` crate refused a message.
fn why(header: &Header, error: &Error) -> String {
    match error {
        Error::InvalidMessage | Error::InvalidParam | Error::IncorrectFds => header.explain(),
        Error::InactiveFeature(_) | Error::InactiveOperation(_) => header.not_negotiated(),
        error => format!("{header}: {error}"),
    }
}

//! The conversation with a driver.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vhost::vhost_user::{BackendReqHandler, Error};

use super::backend::Backend;
use super::device::Device;
use super::early;
use super::limits::Rates;
use super::message::{self, Header, Look};
use crate::connection::{Control, End, Woken};
use crate::pairs::Pairs;

/// A driver that connects says something within this time.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// A message that has begun is complete within this time, and a reply is read.
const MESSAGE: Duration = Duration::from_secs(1);
/// How often one that has begun is looked at. Nearly always all of it is there at once.
const AGAIN: Duration = Duration::from_millis(1);

/// How often a driver that has to wait is looked at: it may have hung up meanwhile.
const REST: Duration = Duration::from_millis(20);

/// Serves one driver until it leaves, lies or the port is closed. One that says too much in a while
/// waits, and delays nobody but itself.
pub(super) fn converse(
    device: &Arc<Device>,
    stream: UnixStream,
    control: &Control,
    rates: &mut Rates,
) -> End {
    // Connections count like messages.
    while let Err(wait) = rates.take(false) {
        control.wait(None, Some(wait));
        if control.is_stopping() {
            return End::Stop;
        }
    }
    let backend = Arc::new(Mutex::new(Backend::new(device.clone())));
    let mut handler = BackendReqHandler::from_stream(stream, backend.clone());
    let mut limit = Some(FIRST_MESSAGE);
    // Since when something has been missing, of a message or of the room for a reply.
    let mut incomplete: Option<Instant> = None;
    // For how long the next message has to wait.
    let mut rest: Option<Duration> = None;
    loop {
        // SAFETY: the handler owns the socket and outlives this borrow.
        let socket = unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) };
        let woken = match (rest, incomplete) {
            // What is there would wake us again and again.
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
                    return End::Refused(format!("{what}, for {MESSAGE:?}"));
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

/// Why a message that the `vhost` crate did not take is wrong.
fn why(header: &Header, error: &Error) -> String {
    match error {
        Error::InvalidMessage | Error::InvalidParam | Error::IncorrectFds => header.explain(),
        Error::InactiveFeature(_) | Error::InactiveOperation(_) => header.not_negotiated(),
        error => format!("{header}: {error}"),
    }
}

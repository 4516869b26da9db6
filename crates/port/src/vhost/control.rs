//! The conversation with a driver.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vhost::vhost_user::{BackendReqHandler, Error};

use super::backend::Backend;
use super::device::Device;
use super::early;
use crate::connection::{Control, End, Woken};

/// A driver that connects says something within this time.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// A message that has begun is complete within this time, and a reply is read.
const MESSAGE: Duration = Duration::from_secs(1);

/// Serves one driver until it leaves, lies or the port is closed.
pub(super) fn converse(device: &Arc<Device>, stream: UnixStream, control: &Control) -> End {
    for set in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
        if let Err(error) = set(&stream, Some(MESSAGE)) {
            return End::Refused(format!("its socket: {error}"));
        }
    }
    let backend = Arc::new(Mutex::new(Backend::new(device.clone())));
    let mut handler = BackendReqHandler::from_stream(stream, backend.clone());
    let mut limit = Some(FIRST_MESSAGE);
    loop {
        // SAFETY: the handler owns the socket and outlives this borrow.
        let socket = unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) };
        let woken = control.wait(Some(socket), limit);
        if control.is_stopping() {
            return End::Stop;
        }
        if let Some(failure) = device.failure() {
            return End::Refused(failure.to_string());
        }
        match woken {
            Woken::Attention => continue,
            Woken::Timeout if limit.is_none() => continue,
            Woken::Timeout => return End::Refused(format!("no message for {FIRST_MESSAGE:?}")),
            Woken::Readable => limit = None,
        }
        let lock = || backend.lock().unwrap_or_else(PoisonError::into_inner);
        let early = early::enable(socket, &mut lock());
        let result = match early {
            Ok(false) => handler.handle_request(),
            done => done.map(drop),
        };
        let mut backend = lock();
        match result {
            Ok(()) => {
                let features = backend.negotiated();
                control.change(|status| status.features = features);
            }
            Err(Error::Disconnected) => return End::Left,
            Err(error) => {
                let why = backend.refusal.take().unwrap_or_else(|| match error {
                    Error::SocketRetry(_) | Error::PartialMessage => {
                        "a message was cut off".to_owned()
                    }
                    error => error.to_string(),
                });
                return End::Refused(why);
            }
        }
    }
}

//! Take-over of a running program: another process of the same user continues it.
//!
//! The new process sends a request to the control socket (`POST /take-over`) and passes one end of
//! a connection, on which the rest happens:
//!
//! | from | message |
//! |---|---|
//! | old | the pages of its state ([`Page`](crate::Page)); from now on the state does not change |
//! | new | it is ready: all that can fail has been done |
//! | old | it uses no port any more: packets wait in the peers' rings until the last message |
//! | new | it continues; the old process ends without closing anything |
//!
//! Until the last message has been sent, the old process continues if anything fails.

use std::convert::Infallible;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_daemon::{Channel, Client, ClientError, OwnedPage, Refusal, Request, Response};

use crate::page::Page;
use crate::program::{Hello, Program, TakeoverError};

/// Time within which the new process gets ready, while control threads are stopped.
const PREPARING: Duration = Duration::from_secs(10);
/// Time for which the old process waits for the last message.
const ENDING: Duration = Duration::from_secs(3);
/// Time within which the old process must have stopped for the new one to continue; shorter than
/// [`ENDING`], so that the old one still waits then.
const STOPPING: Duration = Duration::from_secs(1);

const READY: &str = "ready";
const STOPPED: &str = "stopped";
const GO: &str = "go";

/// The resource of a control socket by which another process takes over.
pub(crate) struct TakeoverRoute {
    program: Program,
    is_busy: AtomicBool,
}

impl TakeoverRoute {
    /// Path of the resource.
    pub(crate) const PATH: &str = "take-over";

    /// Creates the resource of a program.
    pub(crate) fn new(program: Program) -> Arc<Self> {
        Arc::new(Self { program, is_busy: AtomicBool::new(false) })
    }

    /// Answers the request for a take-over, which `hand_over` then does on a thread of its own; it
    /// returns why that has failed.
    pub(crate) fn answer(
        self: &Arc<Self>,
        mut request: Request,
        hand_over: impl FnOnce(&Outgoing) -> Result<Infallible, String> + Send + 'static,
    ) -> Result<Response, Refusal> {
        if request.method != "POST" {
            return Err(Refusal::not_allowed(&request, "POST"));
        }
        let name = self.program.name;
        let refuse = |status, what: String| Err(Refusal::new(status, format!("take-over: {what}")));
        let own = rustix::process::geteuid().as_raw();
        if request.user != Some(own) {
            let user = request.user.map_or("unknown".to_owned(), |user| user.to_string());
            let what = format!("take-over by user {user}: only user {own}, the {name}'s own, may");
            return Err(Refusal::new(403, what));
        }
        let new: Hello = match serde_json::from_slice(&request.body) {
            Ok(new) => new,
            Err(error) => return refuse(400, error.to_string()),
        };
        if let Some(what) = self.program.differ(&self.program.hello(), &new) {
            return refuse(409, what);
        }
        let count = request.descriptors.len();
        let (Some(socket), 1) = (request.descriptors.pop(), count) else {
            return refuse(400, format!("{count} file descriptors; give one"));
        };
        let channel = match Channel::of(socket) {
            Ok(channel) => channel,
            Err(error) => return refuse(400, format!("file descriptor: {error}")),
        };
        if self.is_busy.swap(true, Ordering::Acquire) {
            return refuse(409, "another one is under way".to_owned());
        }
        let (outgoing, route) = (Outgoing { channel }, self.clone());
        let run = move || {
            let Err(why) = hand_over(&outgoing);
            // The new process logs it, unless that process itself has failed.
            let _ = outgoing.channel.send(format!("error: {why}").as_bytes(), &[], STOPPING);
            let line = format!("dray: take-over failed, the {name} goes on: {why}\n");
            // A closed standard error must not end the program.
            let _ = io::stderr().write_all(line.as_bytes());
            route.is_busy.store(false, Ordering::Release);
        };
        match std::thread::Builder::new().name("take-over".to_owned()).spawn(run) {
            Ok(_) => Ok(Response::json(200, &self.program.hello())),
            Err(error) => {
                self.is_busy.store(false, Ordering::Release);
                refuse(500, format!("thread: {error}"))
            }
        }
    }
}

/// The old side of a take-over.
pub struct Outgoing {
    channel: Channel,
}

impl Outgoing {
    /// Sends the pages of the state, and waits until the new process is ready.
    pub fn offer(&self, pages: &[Page<'_>]) -> Result<(), String> {
        let of = |page: &Page<'_>| {
            // A page is JSON, whose text is UTF-8.
            (String::from_utf8_lossy(&page.text).into_owned(), page.descriptors.len())
        };
        let texts: Vec<(String, usize)> = pages.iter().map(of).collect();
        let message = serde_json::to_vec(&texts).map_err(|error| error.to_string())?;
        let descriptors: Vec<_> =
            pages.iter().flat_map(|page| &page.descriptors).copied().collect();
        let sent = self.channel.send(&message, &descriptors, PREPARING);
        sent.map_err(|error| error.to_string())?;
        expect(&self.channel, READY, PREPARING)
    }

    /// Reports that this process uses no port any more. If the new process continues, `end` is
    /// called and this process ends without dropping anything: locks stay locked.
    pub fn complete(&self, end: impl FnOnce()) -> Result<Infallible, String> {
        let sent = self.channel.send(STOPPED.as_bytes(), &[], ENDING);
        sent.map_err(|error| error.to_string())?;
        expect(&self.channel, GO, ENDING).or_else(|why| {
            // From now on the other process cannot send it any more, but it may have done so.
            self.channel.close();
            expect(&self.channel, GO, STOPPING).map_err(|_| why)
        })?;
        end();
        std::process::exit(0)
    }
}

/// The new side of a take-over.
#[derive(Debug)]
pub(crate) struct Incoming {
    channel: Channel,
}

impl Incoming {
    /// Requests the take-over from the program at the socket `control`; also returns the pages of
    /// its state.
    pub(crate) fn request(
        control: &Path,
        program: Program,
    ) -> Result<(Self, Vec<OwnedPage>), TakeoverError> {
        let failed = |error: io::Error| TakeoverError(error.to_string());
        let client = Client::new(control, program.command);
        let name = program.name;
        let refused = |error: ClientError| match error {
            ClientError::Refused { status: 404, .. } => TakeoverError(format!(
                "the running {name} is of a version that cannot hand over; stop it first"
            )),
            error => {
                let what = error.to_string();
                TakeoverError(what.strip_prefix("take-over: ").unwrap_or(&what).to_owned())
            }
        };
        let (own, user) = (rustix::process::geteuid().as_raw(), client.user().map_err(refused)?);
        if user != own {
            let what = format!(
                "the running {name} is user {user}'s, and this is user {own}; start it as the same \
                 user (--user)"
            );
            return Err(TakeoverError(what));
        }
        // Another program may listen there a moment later.
        let client = client.of_user(own);
        let (channel, theirs) = Channel::pair().map_err(failed)?;
        let body = serde_json::to_vec(&program.hello()).expect("plain data");
        let running: Hello =
            client.json_with("POST", "/take-over", &body, &[theirs.as_fd()]).map_err(refused)?;
        drop(theirs);
        if let Some(what) = program.differ(&running, &program.hello()) {
            return Err(TakeoverError(what));
        }
        let (message, descriptors) = receive(&channel, "its state", PREPARING)?;
        let texts: Vec<(String, usize)> = serde_json::from_slice(&message).map_err(|error| {
            TakeoverError(format!("invalid message of the running {name}: {error}"))
        })?;
        let mut descriptors = descriptors.into_iter();
        let pages = texts.into_iter().map(|(text, count)| OwnedPage {
            text: text.into_bytes(),
            descriptors: descriptors.by_ref().take(count).collect(),
        });
        Ok((Self { channel }, pages.collect()))
    }

    /// Reports that this process is ready, waits until the old one has stopped, and makes it end.
    pub(crate) fn complete(&self) -> Result<(), TakeoverError> {
        let send = |message: &str| {
            let sent = self.channel.send(message.as_bytes(), &[], STOPPING);
            sent.map_err(|error| TakeoverError(format!("sending {message:?}: {error}")))
        };
        send(READY)?;
        expect(&self.channel, STOPPED, STOPPING).map_err(TakeoverError)?;
        send(GO)
    }
}

/// Receives a message that must be `message`.
fn expect(channel: &Channel, message: &str, patience: Duration) -> Result<(), String> {
    let what = format!("{message:?}");
    let (received, _) = receive(channel, &what, patience).map_err(|TakeoverError(why)| why)?;
    match received == message.as_bytes() {
        true => Ok(()),
        false => Err("unexpected message".to_owned()),
    }
}

/// Receives the message that errors call `what`.
fn receive(
    channel: &Channel,
    what: &str,
    patience: Duration,
) -> Result<(Vec<u8>, Vec<OwnedFd>), TakeoverError> {
    let received = channel.receive(patience);
    let failed = |error: io::Error| {
        TakeoverError(match error.kind() {
            io::ErrorKind::TimedOut => {
                format!("the other process has not sent {what} for {patience:?}")
            }
            _ => format!("waiting for {what}: {error}"),
        })
    };
    let (message, descriptors) = received.map_err(failed)?;
    match message.strip_prefix(b"error: ") {
        Some(why) => Err(TakeoverError(String::from_utf8_lossy(why).into_owned())),
        None => Ok((message, descriptors)),
    }
}

//! Taking over a running program: another process of the same user continues it.
//!
//! The new process asks at the control socket (`POST /take-over`) and passes one end of a connection,
//! on which the rest happens:
//!
//! | from | message |
//! |---|---|
//! | old | its state, with all descriptors; from now on it does not change |
//! | new | it is ready: all that can fail has been done |
//! | old | it has let go of everything |
//! | new | it goes on; the old process ends without closing anything |
//!
//! Until the last message has been sent, the old process goes on if anything fails.

use std::convert::Infallible;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Channel, Client, ClientError, Hello, Refusal, Request, Response};

/// Time within which the new process gets ready, while control threads stand still.
const PREPARING: Duration = Duration::from_secs(10);
/// Time for which the old process waits for the last message.
const ENDING: Duration = Duration::from_secs(3);
/// Time within which the old process must have stopped for the new one to go on; shorter, so that the
/// old one still waits then.
const STOPPING: Duration = Duration::from_secs(1);

const READY: &[u8] = b"ready";
const STOPPED: &[u8] = b"stopped";
const GO: &[u8] = b"go";

/// A program that can be taken over.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name in messages, such as `switch`.
    pub name: &'static str,
    /// Its command line, such as `dray switch`.
    pub command: &'static str,
    /// Version of the messages. Two processes must have the same.
    pub format: u32,
}

/// A take-over cannot be started or completed; the running program, if there is one, goes on.
#[derive(Debug, thiserror::Error)]
#[error("take-over: {0}")]
pub struct TakeoverError(pub String);

impl Program {
    /// Returns what a process of this program says first.
    pub fn hello(&self) -> Hello {
        Hello::new(self.format)
    }

    /// Returns why the process `new` cannot take over from `running`, if it cannot.
    fn differ(&self, running: &Hello, new: &Hello) -> Option<String> {
        (running.format != new.format).then(|| {
            format!(
                "the running {} is dray {} and the new one dray {}, which exchange other messages \
                 (formats {} and {}): stop the one, then start the other",
                self.name, running.version, new.version, running.format, new.format
            )
        })
    }
}

/// A running program that another process may take over.
pub struct Incumbent {
    program: Program,
    /// Called before this process ends.
    end: Box<dyn Fn() + Send + Sync>,
    is_busy: AtomicBool,
}

impl Incumbent {
    /// Lets processes take over. `end` is called once one has, before this one ends.
    pub fn new(program: Program, end: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { program, end: Box::new(end), is_busy: AtomicBool::new(false) })
    }

    /// Answers the request for a take-over, which `hand_over` then does on a thread of its own; it
    /// returns why that has failed.
    pub fn answer(
        self: &Arc<Self>,
        mut request: Request,
        hand_over: impl FnOnce(&Successor) -> Result<Infallible, String> + Send + 'static,
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
        let successor = Successor { channel, incumbent: self.clone() };
        let run = move || {
            let Err(why) = hand_over(&successor);
            // The new process says it, unless it is what has failed.
            let _ = successor.channel.send(format!("error: {why}").as_bytes(), &[], STOPPING);
            let line = format!("dray: take-over failed, the {name} goes on: {why}\n");
            // A closed standard error must not end the program.
            let _ = std::io::stderr().write_all(line.as_bytes());
            successor.incumbent.is_busy.store(false, Ordering::Release);
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

/// The process that takes over, as the running one sees it.
pub struct Successor {
    channel: Channel,
    incumbent: Arc<Incumbent>,
}

impl Successor {
    /// Tells it what there is, and waits until it is ready.
    pub fn offer(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        let sent = self.channel.send(message, descriptors, PREPARING);
        sent.map_err(|error| error.to_string())?;
        expect(&self.channel, READY, PREPARING)
    }

    /// Tells it that this process has let go of everything. If it goes on, this process ends here, and
    /// drops nothing: what is locked stays so.
    pub fn let_go(&self) -> Result<Infallible, String> {
        let sent = self.channel.send(STOPPED, &[], ENDING);
        sent.map_err(|error| error.to_string())?;
        expect(&self.channel, GO, ENDING).or_else(|why| {
            // From now on the other process cannot send it any more, but it may have.
            self.channel.close();
            expect(&self.channel, GO, STOPPING).map_err(|_| why)
        })?;
        (self.incumbent.end)();
        std::process::exit(0)
    }
}

/// The running process, as the one that takes over sees it.
pub struct Takeover {
    channel: Channel,
}

impl Takeover {
    /// Asks the program at the socket `control` to hand over. Also returns what it says, and the
    /// descriptors that came with it.
    pub fn request(
        control: &Path,
        program: Program,
    ) -> Result<(Self, Vec<u8>, Vec<OwnedFd>), TakeoverError> {
        let failed = |error: std::io::Error| TakeoverError(error.to_string());
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
        let (message, descriptors) = receive(&channel, PREPARING)?;
        Ok((Self { channel }, message, descriptors))
    }

    /// Tells the running process that this one is ready, and that it goes on once the other one has
    /// let go. If that succeeds, the other one ends.
    pub fn complete(&self) -> Result<(), TakeoverError> {
        let failed = |error: std::io::Error| TakeoverError(error.to_string());
        self.channel.send(READY, &[], STOPPING).map_err(failed)?;
        expect(&self.channel, STOPPED, STOPPING).map_err(TakeoverError)?;
        self.channel.send(GO, &[], STOPPING).map_err(failed)
    }
}

/// Waits for a message without content.
fn expect(channel: &Channel, message: &[u8], patience: Duration) -> Result<(), String> {
    let (received, _) = receive(channel, patience).map_err(|TakeoverError(why)| why)?;
    match received == message {
        true => Ok(()),
        false => Err("unexpected message".to_owned()),
    }
}

fn receive(
    channel: &Channel,
    patience: Duration,
) -> Result<(Vec<u8>, Vec<OwnedFd>), TakeoverError> {
    let received = channel.receive(patience);
    let (message, descriptors) = received.map_err(|error| TakeoverError(error.to_string()))?;
    match message.strip_prefix(b"error: ") {
        Some(why) => Err(TakeoverError(String::from_utf8_lossy(why).into_owned())),
        None => Ok((message, descriptors)),
    }
}

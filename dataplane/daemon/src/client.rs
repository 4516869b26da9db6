//! Client of a control socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_netdev::peer_user;
use dray_socket::{Place, path_of};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;

use crate::http::DESCRIPTORS_MAX;

const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a reply: more than the largest tables need.
const ANSWER_MAX: u64 = 1 << 30;
const HEADERS_MAX: usize = 32;

/// Client of the program at a control socket. Every call opens its own connection.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    program: &'static str,
    /// The user whose program must listen there, if not any.
    user: Option<u32>,
}

/// There is no valid reply, or the request was refused.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No program listens at the socket.
    #[error("no program listens at {}; start `{program}`, or give its socket with --control", socket.display())]
    NotRunning {
        /// Path of the control socket.
        socket: PathBuf,
        /// Command line that starts the program.
        program: &'static str,
    },
    /// The program refused the request.
    #[error("{what}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Error message of the program.
        what: String,
    },
    /// The connection broke, or the reply is invalid.
    #[error("`{program}` at {}: {what}", socket.display())]
    Broken {
        /// Path of the control socket.
        socket: PathBuf,
        /// Program expected at the socket.
        program: &'static str,
        /// Description of the error.
        what: String,
    },
}

impl Client {
    /// Creates a client for the program at `socket`; `program` is its command line, such as `dray
    /// switch`.
    pub fn new(socket: &Path, program: &'static str) -> Self {
        Self { socket: socket.to_owned(), program, user: None }
    }

    /// Refuses, from now on, a program of another user than `user`.
    pub fn of_user(self, user: u32) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Returns the number of the user that the program runs as.
    pub fn user(&self) -> Result<u32, ClientError> {
        peer_user(&self.connect()?).map_err(|error| self.broken(&error))
    }

    fn connect(&self) -> Result<UnixStream, ClientError> {
        let file = Place::target(&self.socket).and_then(|place| place.socket());
        let stream = file.and_then(|file| UnixStream::connect(path_of(&file)));
        let stream = stream.and_then(|stream| match (self.user, peer_user(&stream)?) {
            (Some(expected), user) if user != expected => {
                Err(io::Error::other(format!("user {user} listens there, not user {expected}")))
            }
            _ => Ok(stream),
        });
        stream.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::InvalidInput => {
                ClientError::NotRunning { socket: self.socket.clone(), program: self.program }
            }
            _ => self.broken(&error),
        })
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a request, and parses the reply as JSON.
    pub fn json<T: DeserializeOwned>(
        &self,
        method: &str,
        target: &str,
        body: &[u8],
    ) -> Result<T, ClientError> {
        self.json_with(method, target, body, &[])
    }

    /// Like [`json`](Self::json), with file descriptors, at most [`DESCRIPTORS_MAX`].
    pub fn json_with<T: DeserializeOwned>(
        &self,
        method: &str,
        target: &str,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<T, ClientError> {
        let bytes = self.ask_with(method, target, body, descriptors)?;
        serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))
    }

    /// Sends a request; returns the reply's body unless the request was refused.
    pub fn ask(&self, method: &str, target: &str, body: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.ask_with(method, target, body, &[])
    }

    /// Sends a request; parses the reply as JSON, and returns the file descriptors that came with
    /// it, and the connection, which the program keeps open.
    pub fn keep<T: DeserializeOwned>(
        &self,
        method: &str,
        target: &str,
        body: &[u8],
    ) -> Result<(T, Vec<OwnedFd>, Connection), ClientError> {
        let (bytes, received) = self.talk(method, target, body, &[])?;
        let value = serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))?;
        let Received { stream, descriptors } = received;
        Ok((value, descriptors, Connection(stream)))
    }

    fn ask_with(
        &self,
        method: &str,
        target: &str,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, ClientError> {
        self.talk(method, target, body, descriptors).map(|(body, _)| body)
    }

    fn talk(
        &self,
        method: &str,
        target: &str,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Vec<u8>, Received), ClientError> {
        let mut received = Received { stream: self.connect()?, descriptors: Vec::new() };
        let answer = exchange(&mut received, method, target, body, descriptors);
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                self.broken(&format_args!("no reply within {} s", PATIENCE.as_secs()))
            }
            _ => self.broken(&error),
        })?;
        let (status, body) = parse(&answer).map_err(|what| self.broken(&what))?;
        if (200..300).contains(&status) {
            return Ok((body.to_vec(), received));
        }
        #[derive(serde::Deserialize)]
        struct Wrong {
            error: String,
        }
        match serde_json::from_slice::<Wrong>(body) {
            Ok(Wrong { error }) => Err(ClientError::Refused { status, what: error }),
            // The reply to a question about health is text.
            Err(_) if status == 503 => {
                let what = String::from_utf8_lossy(body).trim_end().to_owned();
                Err(ClientError::Refused { status, what })
            }
            Err(_) => Err(self.broken(&format_args!("HTTP status {status}"))),
        }
    }

    /// Returns a resource that is text.
    pub fn text(&self, target: &str) -> Result<String, ClientError> {
        let bytes = self.ask("GET", target, b"")?;
        String::from_utf8(bytes).map_err(|error| self.broken(&error))
    }

    /// Asks whether the program's data threads are well, and with `ready` whether its ports are
    /// open as well; the error has the reason.
    pub fn health(&self, ready: bool) -> Result<(), ClientError> {
        self.text("/livez")?;
        if ready {
            self.text("/readyz")?;
        }
        Ok(())
    }

    /// Returns an error for an invalid reply.
    pub fn broken(&self, what: &dyn ToString) -> ClientError {
        ClientError::Broken {
            socket: self.socket.clone(),
            program: self.program,
            what: what.to_string(),
        }
    }
}

/// A connection that a program keeps open; it is closed on drop.
#[derive(Debug)]
pub struct Connection(UnixStream);

impl Connection {
    /// Returns true if the program has closed its end, for example because it has ended.
    pub fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The program has shut down one direction only, so this needs an end of both.
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }
}

/// A stream, and the file descriptors that came with the bytes read so far.
struct Received {
    stream: UnixStream,
    descriptors: Vec<OwnedFd>,
}

impl Read for Received {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.stream, &mut parts, &mut ancillary, flags)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        Ok(received.bytes)
    }
}

fn exchange(
    received: &mut Received,
    method: &str,
    target: &str,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<Vec<u8>> {
    let stream = &mut received.stream;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}");
    let bytes = [head.as_bytes(), b"\r\n\r\n", body].concat();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        let what = format!("at most {DESCRIPTORS_MAX} file descriptors are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // Descriptors arrive with the first of these bytes.
    let parts = [IoSlice::new(&bytes)];
    let sent = sendmsg(&*stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(&bytes[sent..])?;
    let mut answer = Vec::new();
    received.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Returns status and body of a reply that ends with its connection.
fn parse(answer: &[u8]) -> Result<(u16, &[u8]), String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(answer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => {
            return Err("connection closed before the end of the reply's head".to_owned());
        }
        Err(error) => return Err(format!("reply is not HTTP: {error}")),
    };
    let body = &answer[length..];
    let said = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let said = said.and_then(|h| str::from_utf8(h.value).ok()?.trim().parse::<usize>().ok());
    if said.is_some_and(|said| said != body.len()) {
        return Err("connection closed in the middle of the reply's body".to_owned());
    }
    Ok((parsed.code.unwrap_or(0), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_or_invalid_reply_is_an_error() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), Ok((200, &b"{}"[..])));
        assert_eq!(parse(b"HTTP/1.1 204 No Content\r\n\r\n"), Ok((204, &b""[..])));
        for (answer, part) in [
            (&b""[..], "closed"),
            (b"HTTP/1.1 200 OK\r\n", "closed"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "middle"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        ] {
            assert!(parse(answer).unwrap_err().contains(part));
        }
    }

    #[test]
    fn connect_error_names_socket_and_program() {
        let client = Client::new("/nosuch/x.sock".as_ref(), "dray switch");
        let error = client.ask("GET", "/", b"").unwrap_err().to_string();
        assert!(error.contains("/nosuch/x.sock") && error.contains("dray switch"), "{error}");
    }
}

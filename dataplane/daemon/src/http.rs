//! HTTP/1.1 as far as a control socket needs it: one request per connection, a bounded head, and a
//! body whose length is announced.

use std::any::Any;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// Maximum length of a request's head, in bytes.
pub const HEAD_MAX: usize = 8 << 10;
/// Default maximum length of a request's body, in bytes.
pub const BODY_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 64;
/// Maximum number of file descriptors that come with a request: one for each queue of
/// a port, and the table of its bypass.
pub const DESCRIPTORS_MAX: usize = 17;

/// A complete request.
#[derive(Debug, Default)]
pub struct Request {
    /// Method, such as `GET`.
    pub method: String,
    /// Path from the first slash, without the query.
    pub path: String,
    /// `key=value` pairs after the question mark, not decoded.
    pub query: Vec<(String, String)>,
    /// Media types that the client accepts; empty if it names none.
    pub accept: String,
    /// Body; empty if the message has none.
    pub body: Vec<u8>,
    /// File descriptors that came with it (`SCM_RIGHTS`), in order.
    pub descriptors: Vec<OwnedFd>,
    /// Number of the user that sent it, if it came over a Unix socket.
    pub user: Option<u32>,
}

impl Request {
    /// Returns a refusal if the query has a key other than those in `known`.
    pub fn check_keys(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.query.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let takes = if known.is_empty() { "no keys".to_owned() } else { known.join(", ") };
                let what = format!("unknown key {key:?}; {} takes {takes}", self.path);
                Err(Refusal::new(400, what))
            }
        }
    }

    /// Returns true if the client reads OpenMetrics.
    pub(crate) fn accepts_open_metrics(&self) -> bool {
        self.accept.contains("application/openmetrics-text")
    }

    /// Returns a refusal if file descriptors came with the request.
    pub fn check_no_descriptors(&self) -> Result<(), Refusal> {
        if self.descriptors.is_empty() {
            return Ok(());
        }
        let (count, Self { method, path, .. }) = (self.descriptors.len(), self);
        let what = format!("{count} file descriptors in the request; {method} {path} takes none");
        Err(Refusal::new(400, what))
    }
}

/// Refusal of a request with an error.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what}")]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Error message of one line.
    pub what: String,
    /// For status 405: the allowed methods.
    pub allow: Option<&'static str>,
}

impl Refusal {
    /// Creates a refusal with an HTTP status and an error message of one line.
    pub fn new(status: u16, what: impl Into<String>) -> Self {
        Self { status, what: what.into(), allow: None }
    }

    /// Creates a refusal because the resource only has the methods that `allow` lists.
    pub fn not_allowed(request: &Request, allow: &'static str) -> Self {
        let what = format!("{} {}: method not allowed; give {allow}", request.method, request.path);
        Self { allow: Some(allow), ..Self::new(405, what) }
    }
}

/// Reason that no request could be read.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The request is answered with an error.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The peer has disconnected, or was silent for too long: no reply is sent.
    #[error(transparent)]
    Gone(#[from] io::Error),
}

struct Head {
    request: Request,
    /// Length of the head itself, in bytes.
    length: usize,
    body: usize,
    expects_continue: bool,
}

/// Reads one request with a body of at most `body_max` bytes. Writes to `stream` only to tell a
/// peer to continue with its body.
pub fn read_request(
    stream: &mut (impl Read + Write),
    body_max: usize,
) -> Result<Request, RequestError> {
    let mut bytes = Vec::with_capacity(1024);
    let head = loop {
        if let Some(head) = parse_head(&bytes, body_max)? {
            break head;
        }
        if bytes.len() >= HEAD_MAX {
            let what = format!("request head is too long; at most {HEAD_MAX} bytes are allowed");
            return Err(Refusal::new(431, what).into());
        }
        let missing = HEAD_MAX - bytes.len();
        if read_some(stream, &mut bytes, missing)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    };
    let mut body = bytes.split_off(head.length);
    if body.len() < head.body && head.expects_continue {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    while body.len() < head.body {
        let missing = head.body - body.len();
        if read_some(stream, &mut body, missing)? == 0 {
            let what =
                format!("Content-Length: {} bytes, but the body has {}", head.body, body.len());
            return Err(Refusal::new(400, what).into());
        }
    }
    body.truncate(head.body);
    Ok(Request { body, ..head.request })
}

/// Reads and appends at most `most` bytes.
fn read_some(stream: &mut impl Read, bytes: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let mut chunk = [0; 4096];
    let most = most.min(chunk.len());
    loop {
        match stream.read(&mut chunk[..most]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                return Ok(count);
            }
        }
    }
}

/// Parses a head; `None` if it is incomplete.
fn parse_head(bytes: &[u8], body_max: usize) -> Result<Option<Head>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let what = format!("too many header fields; at most {HEADERS_MAX} are allowed");
            return Err(Refusal::new(431, what));
        }
        Err(error) => return Err(Refusal::new(400, format!("not HTTP/1.1: {error}"))),
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !path.starts_with('/') {
        return Err(Refusal::new(400, format!("path {path:?}: give one that begins with /")));
    }
    let (mut body, mut expects_continue) = (None, false);
    let mut accept = String::new();
    for header in parsed.headers.iter() {
        let name = header.name;
        let value = str::from_utf8(header.value).unwrap_or("(not UTF-8)").trim();
        if name.eq_ignore_ascii_case("content-length") {
            let length = parse_length(value, body_max)?;
            if body.is_some_and(|before| before != length) {
                return Err(Refusal::new(
                    400,
                    "Content-Length: given twice, with different values",
                ));
            }
            body = Some(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            let what = format!("Transfer-Encoding: {value}: not supported; send Content-Length");
            return Err(Refusal::new(411, what));
        } else if name.eq_ignore_ascii_case("expect") {
            expects_continue = value.eq_ignore_ascii_case("100-continue");
        } else if name.eq_ignore_ascii_case("accept") {
            accept.push_str(value);
        }
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        accept,
        body: Vec::new(),
        descriptors: Vec::new(),
        user: None,
    };
    Ok(Some(Head { request, length, body: body.unwrap_or(0), expects_continue }))
}

fn parse_length(value: &str, body_max: usize) -> Result<usize, Refusal> {
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Refusal::new(400, format!("Content-Length: {value:?} is not a number")));
    }
    // Only digits, so a parse error means that the number is too large.
    match value.parse() {
        Ok(length) if length <= body_max => Ok(length),
        _ => {
            let what = format!("body of {value} bytes is too long; at most {body_max} are allowed");
            Err(Refusal::new(413, what))
        }
    }
}

/// A reply.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    content_type: &'static str,
    /// Additional header fields.
    headers: Vec<(&'static str, String)>,
    /// Body in the content type.
    pub body: Vec<u8>,
    /// File descriptor that goes with it (`SCM_RIGHTS`).
    pub(crate) descriptor: Option<OwnedFd>,
    /// Lives until the client closes its connection.
    pub(crate) kept: Option<Kept>,
}

/// Values that live as long as a connection.
pub(crate) struct Kept(#[expect(dead_code, reason = "it is only dropped")] Box<dyn Any + Send>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

impl Response {
    fn new(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status, content_type, headers: Vec::new(), body, descriptor: None, kept: None }
    }

    /// Creates a reply with a value as JSON.
    pub fn json(status: u16, value: &impl serde::Serialize) -> Self {
        let mut body = serde_json::to_vec_pretty(value).expect("replies serialise to JSON");
        body.push(b'\n');
        Self::new(status, "application/json", body)
    }

    /// Creates a reply with text of a media type.
    pub fn text(status: u16, content_type: &'static str, text: String) -> Self {
        Self::new(status, content_type, text.into_bytes())
    }

    /// Creates the reply to a question whether the program is well: 503 with the reason if not.
    pub fn health(health: Result<(), String>) -> Self {
        let (status, text) = match health {
            Ok(()) => (200, "ok".to_owned()),
            Err(why) => (503, why),
        };
        Self::text(status, "text/plain; charset=utf-8", text + "\n")
    }

    /// Creates an empty reply of success.
    pub fn done() -> Self {
        Self::new(204, "", Vec::new())
    }

    /// Adds a header field.
    #[must_use]
    pub fn with(mut self, header: &'static str, value: String) -> Self {
        self.headers.push((header, value));
        self
    }

    /// Adds a file descriptor, which the client gets with the first byte.
    #[must_use]
    pub fn with_descriptor(self, descriptor: OwnedFd) -> Self {
        Self { descriptor: Some(descriptor), ..self }
    }

    /// Keeps the connection open until the client closes it; then `kept` is dropped.
    #[must_use]
    pub fn until_closed(self, kept: impl Any + Send) -> Self {
        Self { kept: Some(Kept(Box::new(kept))), ..self }
    }

    /// Returns a copy of a reply without values that exist once.
    pub(crate) fn copy(&self) -> Option<Self> {
        let Self { status, content_type, headers, body, descriptor: None, kept: None } = self
        else {
            return None;
        };
        let (headers, body) = (headers.clone(), body.clone());
        Some(Self { headers, ..Self::new(*status, content_type, body) })
    }

    pub(crate) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let Self { status, content_type, headers, body, .. } = self;
        let mut head = format!("HTTP/1.1 {status} {}\r\nConnection: close\r\n", reason(*status));
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // A 204 has neither a body nor a length.
        if *status != 204 {
            head.push_str(&format!("Content-Type: {content_type}\r\n"));
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let answer = Self::json(refusal.status, &serde_json::json!({ "error": refusal.what }));
        match refusal.allow {
            Some(methods) => answer.with("Allow", methods.to_owned()),
            None => answer,
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A peer that sends its bytes in pieces and then closes.
    struct Peer<'a> {
        pieces: std::vec::IntoIter<&'a [u8]>,
        replies: Vec<u8>,
    }

    impl<'a> Peer<'a> {
        fn new(bytes: &'a [u8], piece: usize) -> Self {
            let pieces = bytes.chunks(piece.max(1)).collect::<Vec<_>>().into_iter();
            Self { pieces, replies: Vec::new() }
        }
    }

    impl Read for Peer<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(piece) = self.pieces.as_slice().first().copied() else { return Ok(0) };
            let (now, later) = piece.split_at(piece.len().min(into.len()));
            into[..now.len()].copy_from_slice(now);
            let rest: Vec<_> = self.pieces.by_ref().skip(1).collect();
            let later = (!later.is_empty()).then_some(later);
            self.pieces = later.into_iter().chain(rest).collect::<Vec<_>>().into_iter();
            Ok(now.len())
        }
    }

    impl Write for Peer<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.replies.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn refused(bytes: &[u8]) -> Refusal {
        match read_request(&mut Peer::new(bytes, usize::MAX), BODY_MAX) {
            Err(RequestError::Refused(refusal)) => refusal,
            other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
        }
    }

    #[test]
    fn request_split_anywhere_parses_the_same() {
        let bytes = b"POST /ports/a?port=b&x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        for piece in [1, 2, 7, 40, 1000] {
            let request = read_request(&mut Peer::new(bytes, piece), BODY_MAX).unwrap();
            assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/ports/a"));
            let query = [("port", "b"), ("x", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
            assert_eq!(request.query, query);
            assert_eq!(request.body, b"hello");
        }
    }

    #[test]
    fn expect_header_gets_100_continue() {
        let head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab";
        let mut peer = Peer::new(head, head.len() - 2);
        assert_eq!(read_request(&mut peer, BODY_MAX).unwrap().body, b"ab");
        assert_eq!(peer.replies, b"HTTP/1.1 100 Continue\r\n\r\n");
        // The peer gets no such response if the body has already arrived.
        let mut peer = Peer::new(head, head.len());
        read_request(&mut peer, BODY_MAX).unwrap();
        assert!(peer.replies.is_empty());
    }

    #[test]
    fn refusal_has_status_and_names_value() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD_MAX));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        let large = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", BODY_MAX + 1);
        for (text, status, part) in [
            ("hello\r\n\r\n", 400, "not HTTP/1.1"),
            ("GET / HTTP/2.0\r\n\r\n", 400, "not HTTP/1.1"),
            ("GET http://x/ HTTP/1.1\r\n\r\n", 400, "http://x/"),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab", 400, "5 bytes, but the body has 2"),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "\"-1\""),
            ("POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400, "\"+1\""),
            ("POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", 400, "\"\""),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "twice"),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413, "999"),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, "chunked"),
            (&large, 413, "262145 bytes"),
            (&long, 431, "8192 bytes"),
            (&many, 431, "at most 64"),
        ] {
            let refusal = refused(text.as_bytes());
            assert_eq!(refusal.status, status, "{refusal}");
            assert!(refusal.what.contains(part), "{refusal}");
        }
    }

    #[test]
    fn status_line_has_the_reason_of_its_status() {
        for (status, reason) in [(200, "OK"), (403, "Forbidden"), (500, "Internal Server Error")] {
            let mut bytes = Vec::new();
            Response::from(Refusal::new(status, "x")).write(&mut bytes).unwrap();
            let line = format!("HTTP/1.1 {status} {reason}\r\n");
            assert!(bytes.starts_with(line.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn incomplete_head_means_peer_is_gone() {
        for text in ["", "GET", "GET / HTTP/1.1\r\nHost: x\r\n"] {
            let error = read_request(&mut Peer::new(text.as_bytes(), 5), BODY_MAX).unwrap_err();
            assert!(matches!(error, RequestError::Gone(_)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_parse_or_are_refused(
            start in "(GET|POST|X)? ?/?[a-z?=&]{0,8} ?(HTTP/1\\.[01])?(\r\n)?(Content-Length: [0-9]{0,4}\r\n)?(\r\n)?",
            bytes: Vec<u8>,
            piece in 1..50usize,
        ) {
            let bytes = [start.as_bytes(), &bytes].concat();
            if let Ok(request) = read_request(&mut Peer::new(&bytes, piece), BODY_MAX) {
                prop_assert!(request.path.starts_with('/'));
                prop_assert!(bytes.len() >= request.body.len());
            }
        }
    }
}

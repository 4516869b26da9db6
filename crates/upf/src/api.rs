//! The control interface: HTTP/1.1 and JSON over a Unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | version, uptime, how many sessions ([`Status`]) |
//! | `GET /sessions`, `GET /sessions/SEID` | sessions and what they have used ([`SessionStatus`]) |
//! | `POST /sessions` | makes the [`Transaction`] of the body as a whole, or nothing of it: 204 |
//! | `GET /stats` | what both directions have counted ([`Stats`]) |
//!
//! An error is `{"error": "..."}`.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dray_daemon::{ClientError, ControlSocket, Limits, Refusal, Request, Response, Server};
use serde::{Deserialize, Serialize};

use crate::config::{self, ConfigError, SessionConfig};
use crate::usage::Way;
use crate::{Counters, EventsLost, Operation, SessionStatus, Upf};

/// Where it is by default.
pub const CONTROL: &str = "/run/dray/upf.sock";
/// The longest body of a request, in bytes: some ten thousand sessions.
const BODY_MAX: usize = 64 << 20;

/// How a user plane function is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of this program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// How many sessions there are.
    pub sessions: usize,
    /// For how many there is room.
    pub sessions_max: usize,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// From access to core.
    pub uplink: Counters,
    /// From core to access.
    pub downlink: Counters,
    /// Frames that each worker of the uplink received.
    pub uplink_workers: Vec<u64>,
    /// The same of the downlink.
    pub downlink_workers: Vec<u64>,
    /// Reports that were lost because nobody took them.
    pub events_lost: EventsLost,
}

impl From<&Upf> for Stats {
    fn from(upf: &Upf) -> Self {
        let received = |way| upf.workers(way).map(|worker| worker.rx_packets).collect();
        Self {
            uplink: upf.uplink(),
            downlink: upf.downlink(),
            uplink_workers: received(Way::Uplink),
            downlink_workers: received(Way::Downlink),
            events_lost: upf.events_lost(),
        }
    }
}

/// Changes that are made together. Removed sessions go first, so that others may have what they leave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transaction {
    /// SEIDs of sessions that go.
    pub remove: Vec<u64>,
    /// Sessions that take the place of those with their SEIDs.
    pub modify: Vec<SessionConfig>,
    /// New sessions.
    pub add: Vec<SessionConfig>,
    /// Whether modified sessions send an end marker into tunnels that they leave.
    pub end_marker: bool,
}

impl From<Transaction> for Vec<Operation> {
    fn from(transaction: Transaction) -> Self {
        let Transaction { remove, modify, add, end_marker } = transaction;
        let modify = modify.into_iter().map(|session| Operation::Modify { session, end_marker });
        let remove = remove.into_iter().map(Operation::Remove);
        remove.chain(modify).chain(add.into_iter().map(Operation::Add)).collect()
    }
}

/// Serves `upf` at `socket`.
pub fn serve(socket: ControlSocket, upf: Arc<Upf>) -> Server {
    let started = Instant::now();
    let limits = Limits { body: BODY_MAX, ..Limits::default() };
    Server::start(socket, limits, move |request| answer(&upf, started, request))
}

/// Answers `request` for `upf`, which runs since it was `started`.
pub fn answer(upf: &Upf, started: Instant, request: &Request) -> Response {
    route(upf, started, request).unwrap_or_else(Response::from)
}

fn route(upf: &Upf, started: Instant, request: &Request) -> Result<Response, Refusal> {
    request.check_keys(&[])?;
    let segments: Vec<_> = request.path.trim_matches('/').split('/').collect();
    match (segments.as_slice(), request.method.as_str()) {
        ([""], "GET") => Ok(Response::json(
            200,
            &Status {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_s: started.elapsed().as_secs_f64(),
                sessions: upf.session_count(),
                sessions_max: upf.sessions_max(),
            },
        )),
        ([""] | ["stats"] | ["sessions", _], method) if method != "GET" => {
            Err(Refusal::not_allowed(request, "GET"))
        }
        (["stats"], _) => Ok(Response::json(200, &Stats::from(upf))),
        (["sessions", seid], _) => {
            let missing = || Refusal::new(404, format!("session {seid:?}: there is none"));
            let session = seid.parse().ok().and_then(|seid| upf.session(seid));
            Ok(Response::json(200, &session.ok_or_else(missing)?))
        }
        (["sessions"], "GET") => Ok(Response::json(200, &upf.sessions())),
        (["sessions"], "POST") => {
            let transaction: Transaction = config::from_json(&request.body)?;
            upf.apply(&Vec::from(transaction))?;
            Ok(Response::done())
        }
        (["sessions"], _) => Err(Refusal::not_allowed(request, "GET, POST")),
        _ => {
            let there = "/, /sessions, /sessions/SEID, /stats";
            Err(Refusal::new(404, format!("{}: unknown; there are {there}", request.path)))
        }
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::new(400, error.to_string())
    }
}

/// Asks the user plane function at a control socket.
#[derive(Clone, Debug)]
pub struct Client(dray_daemon::Client);

impl Client {
    /// For the user plane function at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self(dray_daemon::Client::new(socket, "dray upf"))
    }

    /// How it is.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.0.json("GET", "/", b"")
    }

    /// What it has counted.
    pub fn stats(&self) -> Result<Stats, ClientError> {
        self.0.json("GET", "/stats", b"")
    }

    /// Its sessions.
    pub fn sessions(&self) -> Result<Vec<SessionStatus>, ClientError> {
        self.0.json("GET", "/sessions", b"")
    }

    /// Makes it change sessions: all as the transaction says, or none.
    pub fn change(&self, transaction: &Transaction) -> Result<(), ClientError> {
        let body = serde_json::to_vec(transaction).expect("sessions have a form in JSON");
        self.0.ask("POST", "/sessions", &body).map(drop)
    }
}

//! The control interface: HTTP/1.1 and JSON over a Unix socket.
//!
//! | request | response |
//! |---|---|
//! | `GET /` | version, uptime, number of sessions, data threads, ports ([`Status`]) |
//! | `GET /sessions` | sessions, their tunnels, and what they have used ([`SessionStatus`]) |
//! | `GET /sessions/SEID` | the same of one session, with its configuration |
//! | `POST /sessions` | applies the [`Transaction`] in the body, all or nothing: 204 |
//! | `GET /stats` | counters of both directions ([`Stats`]) |
//! | `GET /capture` | ports that can be captured, n3 and n6 ([`Reply`](dray_capture::Reply)) |
//! | `POST /capture` | starts the capture of the body ([`CaptureRequest`](dray_capture::CaptureRequest)), which ends with the connection |
//! | `POST /take-over` | hands over to another process of the same user, over the connection that comes along |
//! | `GET /metrics` | metrics, as OpenMetrics or in Prometheus' older text format |
//! | `GET /livez` | 200 if all data threads publish, or 503 with the reason |
//! | `GET /readyz` | 200 once both ports are open |
//!
//! An error response is `{"error": "..."}`. The last three are at a TCP address as well, if the
//! program was given one: there, nothing can be changed, and nothing else be seen.

mod metrics;
mod stats;

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dray_daemon::{ClientError, ControlSocket, Limits, Refusal, Request, Response, Server};
use dray_datapath::Activity;
use dray_port::LinkStatus;
use dray_service::{Outgoing, answer_monitor, no_such_resource, observe};
use serde::{Deserialize, Serialize};

use crate::config::{self, ConfigError, SessionConfig};
use crate::leaving::PROGRAM;
use crate::{Operation, SessionStatus, Upf};

pub use self::stats::Stats;

/// Default path of the control socket, outside of labs.
pub const CONTROL: &str = "/run/dray/upf.sock";
/// Maximum length of a request body, in bytes: some ten thousand sessions.
const BODY_MAX: usize = 64 << 20;

/// Status of a user plane function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of this program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Number of sessions.
    pub sessions: usize,
    /// Maximum number of sessions.
    pub sessions_max: usize,
    /// Data threads.
    #[serde(default)]
    pub workers: Vec<WorkerStatus>,
    /// N3 and N6.
    #[serde(default)]
    pub ports: Vec<PortStatus>,
}

/// Status of a data thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// CPU that the thread is pinned to.
    pub cpu: u32,
    /// Time since its start in which the thread had packets to move, in seconds.
    pub work_s: f64,
    /// Number of times that the thread went to sleep.
    pub sleeps: u64,
    /// Number of batches that the thread has received.
    pub batches: u64,
    /// Number of packets in these batches.
    pub packets: u64,
}

/// Status of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Name of the port: `n3` or `n6`.
    pub name: String,
    /// Link to the peer; its keys are at the top level of the object.
    #[serde(flatten)]
    pub link: LinkStatus,
}

impl Status {
    fn new(upf: &Upf, started: Instant) -> Self {
        let worker = |(cpu, activity): (usize, &Activity)| WorkerStatus {
            cpu: cpu as u32,
            work_s: activity.work().as_secs_f64(),
            sleeps: activity.sleeps(),
            batches: activity.moved().batches,
            packets: activity.moved().frames,
        };
        let names = ["n3", "n6"].map(str::to_owned).into_iter();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: started.elapsed().as_secs_f64(),
            sessions: upf.session_count(),
            sessions_max: upf.sessions_max(),
            workers: upf.threads().map(worker).collect(),
            ports: names.zip(upf.links()).map(|(name, link)| PortStatus { name, link }).collect(),
        }
    }
}

/// Changes that are applied together. Sessions are removed first, so that new ones may reuse their
/// addresses and tunnels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transaction {
    /// SEIDs of sessions to remove.
    pub remove: Vec<u64>,
    /// Sessions that replace those with the same SEID.
    pub modify: Vec<SessionConfig>,
    /// Sessions to add.
    pub add: Vec<SessionConfig>,
    /// True if modified sessions send an end marker into tunnels that they leave.
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

/// Serves `upf` at `socket`. When another process has taken over, `end` is called, and this process
/// ends.
pub fn serve(
    socket: ControlSocket,
    upf: Arc<Upf>,
    end: impl Fn() + Send + Sync + 'static,
) -> Server {
    let started = Instant::now();
    let limits = Limits { body: BODY_MAX, ..Limits::default() };
    let running = upf.clone();
    let hand_over = move |outgoing: &Outgoing| running.hand_over(outgoing, &end);
    let answer = move |request| answer(&upf, started, &request);
    dray_service::serve(socket, limits, PROGRAM, hand_over, answer)
}

/// Serves metrics and health of `upf` to every host that reaches `listener`.
pub fn serve_monitors(listener: TcpListener, upf: Arc<Upf>) -> Server {
    dray_service::serve_monitors(listener, move |request| answer_monitor(&*upf, request))
}

/// Returns the response to `request`; `upf` has been running since `started`.
pub fn answer(upf: &Upf, started: Instant, request: &Request) -> Response {
    route(upf, started, request).unwrap_or_else(Response::from)
}

fn route(upf: &Upf, started: Instant, request: &Request) -> Result<Response, Refusal> {
    request.check_keys(&[])?;
    request.check_no_descriptors()?;
    if let Some(observed) = observe(upf, request) {
        return observed;
    }
    let segments: Vec<_> = request.path.trim_matches('/').split('/').collect();
    match (segments.as_slice(), request.method.as_str()) {
        ([""], "GET") => Ok(Response::json(200, &Status::new(upf, started))),
        ([""] | ["stats"] | ["sessions", _], method) if method != "GET" => {
            Err(Refusal::not_allowed(request, "GET"))
        }
        (["stats"], _) => Ok(Response::json(200, &Stats::from(upf))),
        (["sessions", seid], _) => {
            let missing = || Refusal::new(404, format!("no such session: {seid:?}"));
            let session = seid.parse().ok().and_then(|seid| upf.session(seid));
            Ok(Response::json(200, &session.ok_or_else(missing)?))
        }
        (["sessions"], "GET") => Ok(Response::json(200, &upf.sessions())),
        (["sessions"], "POST") => {
            let transaction: Transaction = config::from_json(&request.body)?;
            upf.apply(&Vec::from(transaction))?;
            Ok(Response::done())
        }
        ([dray_capture::PATH], _) => upf.captures().answer(request),
        (["sessions"], _) => Err(Refusal::not_allowed(request, "GET, POST")),
        _ => {
            let own = "/, /sessions, /sessions/SEID, /stats, /capture";
            Err(no_such_resource(request, own))
        }
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::new(400, error.to_string())
    }
}

/// Client of a user plane function's control socket.
#[derive(Clone, Debug)]
pub struct Client(dray_daemon::Client);

impl Client {
    /// Creates a client of the user plane function at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self(dray_daemon::Client::new(socket, "dray upf"))
    }

    /// Returns its status.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.0.json("GET", "/", b"")
    }

    /// Asks whether the data threads are well, and with `ready` whether its ports are open; the
    /// error says why not.
    pub fn health(&self, ready: bool) -> Result<(), ClientError> {
        self.0.health(ready)
    }

    /// Returns its counters.
    pub fn stats(&self) -> Result<Stats, ClientError> {
        self.0.json("GET", "/stats", b"")
    }

    /// Returns its metrics, as text.
    pub fn metrics(&self) -> Result<String, ClientError> {
        self.0.text("/metrics")
    }

    /// Returns its sessions.
    pub fn sessions(&self) -> Result<Vec<SessionStatus>, ClientError> {
        self.0.json("GET", "/sessions", b"")
    }

    /// Returns one of its sessions, with the configuration.
    pub fn session(&self, seid: u64) -> Result<SessionStatus, ClientError> {
        self.0.json("GET", &format!("/sessions/{seid}"), b"")
    }

    /// Changes sessions: applies the whole transaction, or nothing.
    pub fn change(&self, transaction: &Transaction) -> Result<(), ClientError> {
        let body = serde_json::to_vec(transaction).expect("sessions serialise to JSON");
        self.0.ask("POST", "/sessions", &body).map(drop)
    }
}

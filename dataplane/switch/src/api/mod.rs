//! The control interface: HTTP/1.1 and JSON over a Unix socket, so that
//! `curl --unix-socket /run/dray/switch.sock http://localhost/ports` works.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | version, uptime, mode, workers ([`Status`](crate::Status)) |
//! | `GET /ports`, `GET /ports/NAME` | the ports ([`PortStatus`](crate::PortStatus)) |
//! | `POST /ports` | adds the port of the body ([`PortConfig`](crate::PortConfig)), which may use the file descriptors of the request: 201 |
//! | `DELETE /ports/NAME` | removes the port: 204 |
//! | `GET /stats` | counters by port since it was added ([`PortStats`](crate::PortStats)) |
//! | `GET /stats?since=reset` | counters by port since the last reset |
//! | `POST /stats/reset` | makes `since=reset` count from zero: 204 |
//! | `GET /table`, `GET /table?port=NAME` | known stations ([`TableEntry`](crate::TableEntry)) |
//! | `DELETE /table` | forgets the learned stations: 204 |
//! | `POST /take-over` | hands over to another process of the same user, over the connection whose descriptor the request carries |
//! | `GET /capture` | ports that can be captured ([`Reply`](dray_capture::Reply)) |
//! | `POST /capture` | starts the capture of the body ([`CaptureRequest`](dray_capture::CaptureRequest)), which ends with the connection |
//! | `GET /config` | the present configuration as a TOML file, to start the switch with again |
//! | `PUT /config`, `PUT /config?dry_run=1` | makes the ports those of the TOML file in the body ([`Changes`](crate::apply::Changes)), or returns what would change |
//! | `GET /metrics` | metrics, as OpenMetrics or in Prometheus' older text format |
//! | `GET /livez` | 200 if all workers publish, or 503 with the reason |
//! | `GET /readyz` | 200 if the ports of the configuration are open and have not failed, or 503 |
//!
//! An error is `{"error": "..."}`. If the configuration names a TCP address, the last three
//! resources are also served there, and no others.

mod metrics;
mod routes;

use std::net::TcpListener;
use std::sync::Arc;

use dray_daemon::{ControlSocket, Limits, Server};
use dray_service::{Outgoing, answer_monitor};

use crate::apply::Configuration;
use crate::config::FILE_MAX;
use crate::path::Switch;
use crate::snapshot::PROGRAM;

pub use metrics::Observed;
pub use routes::answer;

/// Serves `switch` at `socket`; another process may take over.
pub fn serve(socket: ControlSocket, switch: Arc<Switch>, config: Arc<Configuration>) -> Server {
    let limits = Limits { body: FILE_MAX, ..Limits::default() };
    let running = switch.clone();
    let hand_over = move |outgoing: &Outgoing| running.hand_over(outgoing);
    let answer = move |request| answer(&*switch, &config, request);
    dray_service::serve(socket, limits, PROGRAM, hand_over, answer)
}

/// Serves metrics and health of `switch` to every host that reaches `listener`.
pub fn serve_monitors(
    listener: TcpListener,
    switch: Arc<Switch>,
    config: Arc<Configuration>,
) -> Server {
    dray_service::serve_monitors(listener, move |request| {
        answer_monitor(&Observed::new(&*switch, &config), request)
    })
}

#[cfg(test)]
mod tests;

//! The control interface: HTTP/1.1 and JSON over a Unix socket, so that
//! `curl --unix-socket /run/dray/switch.sock http://localhost/ports` works.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | version, uptime, mode, workers ([`Status`](crate::Status)) |
//! | `GET /ports`, `GET /ports/NAME` | the ports ([`PortStatus`](crate::PortStatus)) |
//! | `POST /ports` | adds the port of the body ([`PortConfig`](crate::PortConfig)), which may use the file descriptors that come along: 201 |
//! | `DELETE /ports/NAME` | removes the port: 204 |
//! | `GET /stats` | counters by port since it was added ([`PortStats`](crate::PortStats)) |
//! | `GET /stats?since=reset` | the same since the last reset |
//! | `POST /stats/reset` | makes `since=reset` count from zero: 204 |
//! | `GET /table`, `GET /table?port=NAME` | known stations ([`TableEntry`](crate::TableEntry)) |
//! | `DELETE /table` | forgets the learned stations: 204 |
//! | `POST /take-over` | hands over to another process of the same user, over the connection that comes along |
//! | `GET /capture` | ports that can be captured ([`Reply`](dray_capture::Reply)) |
//! | `POST /capture` | starts the capture of the body ([`CaptureRequest`](dray_capture::CaptureRequest)), which ends with the connection |
//! | `GET /config` | the present configuration as a TOML file, to start the switch with again |
//! | `PUT /config`, `PUT /config?dry_run=1` | makes the ports those of the TOML file in the body ([`Changes`](crate::apply::Changes)), or says what would change |
//! | `GET /metrics` | metrics, as OpenMetrics or in Prometheus' older text format |
//! | `GET /livez` | 200 if all workers publish, or 503 with the reason |
//! | `GET /readyz` | 200 if the ports of the configuration are open and have not failed, or 503 |
//!
//! An error is `{"error": "..."}`. The last three are at a TCP address as well, if the configuration
//! names one: there, nothing can be changed, and nothing else be seen.

mod metrics;
mod routes;

use std::net::TcpListener;
use std::sync::Arc;

use dray_daemon::{ControlSocket, Limits, Recent, Response, Server};
use dray_service::TakeoverRoute;

use crate::apply::Configuration;
use crate::engine::Engine;
use crate::path::Switch;
use crate::snapshot::PROGRAM;

pub use routes::{answer, answer_monitor};

/// Serves `engine` at `socket`. With `switch`, which is the engine, another process may take over.
pub fn serve(
    socket: ControlSocket,
    engine: Arc<dyn Engine>,
    config: Arc<Configuration>,
    limits: Limits,
    switch: Option<Arc<Switch>>,
) -> Server {
    let takeover = TakeoverRoute::new(PROGRAM);
    Server::start(socket, limits, move |request| match switch.clone() {
        Some(switch) if request.path.trim_matches('/') == TakeoverRoute::PATH => {
            let answered = takeover.answer(request, move |outgoing| switch.hand_over(outgoing));
            answered.unwrap_or_else(Response::from)
        }
        _ => answer(&*engine, &config, request),
    })
}

/// Serves metrics and health of `engine` to whoever reaches `listener`.
pub fn serve_monitors(
    listener: TcpListener,
    engine: Arc<dyn Engine>,
    config: Arc<Configuration>,
) -> Server {
    let recent = Recent::default();
    Server::start(listener, Limits::of_strangers(), move |request| {
        recent.answer(&request, |request| answer_monitor(&*engine, &config, request))
    })
}

#[cfg(test)]
mod tests;

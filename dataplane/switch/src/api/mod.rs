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
//! | `GET /config` | the present configuration as a TOML file, to start the switch with again |
//!
//! An error is `{"error": "..."}`.

mod routes;

use std::sync::Arc;

use dray_daemon::{ControlSocket, Limits, Server};

use crate::config::SwitchConfig;
use crate::engine::Engine;

pub use routes::answer;

/// Serves `engine` at `socket`; `config` is the configuration that the switch was started with.
pub fn serve(
    socket: ControlSocket,
    engine: Arc<dyn Engine>,
    config: SwitchConfig,
    limits: Limits,
) -> Server {
    Server::start(socket, limits, move |request| answer(&*engine, &config, request))
}

#[cfg(test)]
mod tests;

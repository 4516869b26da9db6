//! The control interface: HTTP/1.1 and JSON over a Unix socket, so that
//! `curl --unix-socket /run/dray/switch.sock http://localhost/ports` works.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | version, uptime, mode, workers ([`Status`](crate::Status)) |
//! | `GET /ports`, `GET /ports/NAME` | the ports ([`PortStatus`](crate::PortStatus)) |
//! | `POST /ports` | adds the port of the body ([`PortConfig`](crate::PortConfig)): 201 |
//! | `DELETE /ports/NAME` | removes it: 204 |
//! | `GET /stats` | counters by port ([`PortStats`](crate::PortStats)) |
//! | `GET /table`, `GET /table?port=NAME` | known stations ([`TableEntry`](crate::TableEntry)) |
//! | `DELETE /table` | forgets them: 204 |
//! | `GET /config` | the configuration as it is now, a TOML file to start again with |
//!
//! An error is `{"error": "..."}`. The socket is open to root and its group, who may do all of this;
//! what they send is checked as if they were strangers, since scripts make mistakes too.

mod http;
mod routes;
mod server;
mod socket;

pub use http::{BODY_MAX, HEAD_MAX, Refusal, Request, RequestError, Response, read_request};
pub use routes::answer;
pub use server::{Limits, Server};
pub use socket::{ControlSocket, SocketError};

#[cfg(test)]
mod tests;

//! Common parts of the switch and the user plane function as long-running programs: a control
//! socket that speaks HTTP/1.1 with JSON ([`Server`], [`Client`]), so that `curl --unix-socket`
//! works, metrics for monitoring systems ([`Metrics`]), and the end of the process when a thread
//! dies ([`watch_threads`]), messages to the supervisor ([`Supervisor`]), and the [`log`].
//!
//! The socket is open to root and its group, who may use everything it offers. Their requests are
//! checked as if they were untrusted, since scripts make mistakes too.
#![deny(unsafe_code)]

mod address;
#[expect(unsafe_code, reason = "the supervisor passes descriptors by their numbers")]
mod calls;
mod channel;
mod client;
mod connections;
mod failure;
mod http;
mod listen;
pub mod log;
mod metrics;
mod notify;
mod recent;
mod server;
mod socket;
mod store;

pub use channel::Channel;
pub use client::{Client, ClientError, Connection};
pub use connections::{Limits, NetworkLimits};
pub use failure::{FAREWELL, announce_failures, exit, fail, failure, watch_threads};
pub use http::{
    BODY_MAX, DESCRIPTORS_MAX, HEAD_MAX, Refusal, Request, RequestError, Response, read_request,
};
pub use listen::{AddressError, ListenError, MetricsAddress};
pub use log::LogLevel;
pub use metrics::{Metrics, Value, observe_process};
pub use notify::Supervisor;
pub use recent::Recent;
pub use server::{Answer, Server};
pub use socket::{
    CONTROL_DIR, ControlAddress, ControlSocket, SocketError, check_socket_path, default_control,
};
pub use store::{OwnedPage, Store, StoredPage};

//! The control socket of a role, by which its frames are captured.

use std::sync::Arc;

use dray_capture::{Captures, Tap, tapped};
use dray_daemon::{ControlAddress, ControlSocket, Limits, Refusal, Request, Response, Server};
use dray_port::{OpenError, Port, PortUri};
use dray_traffic::Job;

use crate::common::{Failure, usage};

/// Ports of a role whose frames can be captured.
pub(super) struct Captured {
    captures: Arc<Captures>,
    tap: Arc<Tap>,
    _server: Server,
}

impl Captured {
    /// Serves captures of the ports of `job` at `address`.
    pub(super) fn serve(address: &ControlAddress, job: &Job) -> Result<Self, Failure> {
        if matches!(job, Job::StreamSend(_) | Job::StreamReceive(_)) {
            return Err(usage!("--control {address}: byte streams have no frames to capture"));
        }
        let tap = Arc::<Tap>::default();
        let captures = Arc::new(Captures::new(vec![tap.clone()], []));
        let socket = ControlSocket::bind(address)?;
        let served = captures.clone();
        let server = Server::start(socket, Limits::default(), move |request| {
            answer(&served, &request).unwrap_or_else(Response::from)
        });
        Ok(Self { captures, tap, _server: server })
    }

    /// Opens a port, whose name in captures is its URI.
    pub(super) fn open(&self, uri: &PortUri) -> Result<Port, OpenError> {
        let port = uri.open()?;
        Ok(tapped(port, &self.tap, self.captures.add_port(&uri.to_string())))
    }
}

fn answer(captures: &Arc<Captures>, request: &Request) -> Result<Response, Refusal> {
    request.check_keys(&[])?;
    request.check_no_descriptors()?;
    if request.path.trim_matches('/') != dray_capture::PATH {
        let path = &request.path;
        let what = format!("{path}: no such resource; a role has /{}", dray_capture::PATH);
        return Err(Refusal::new(404, what));
    }
    captures.answer(request)
}

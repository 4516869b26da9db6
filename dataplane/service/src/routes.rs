//! Routes that every service has: metrics and health for monitoring systems, and the take-over.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;

use dray_daemon::{ControlSocket, Limits, Recent, Refusal, Request, Response, Server};

use crate::handover::{Outgoing, TakeoverRoute};
use crate::program::Program;
use crate::service::Service;

/// Resources that monitoring systems may read.
const MONITORED: &str = "/metrics, /livez, /readyz";

/// Answers `request` if it is for metrics or health, whose only method is `GET`.
pub fn observe(service: &dyn Service, request: &Request) -> Option<Result<Response, Refusal>> {
    let answer: fn(&dyn Service, &Request) -> Response = match request.path.trim_matches('/') {
        "metrics" => |service, request| service.metrics().response(request),
        "livez" => |service, _| Response::health(service.check_alive()),
        "readyz" => |service, _| Response::health(service.check_ready()),
        _ => return None,
    };
    if request.method != "GET" {
        return Some(Err(Refusal::not_allowed(request, "GET")));
    }
    Some(request.check_keys(&[]).map(|()| answer(service, request)))
}

/// Returns the refusal of a request for an unknown resource; it names `own`, a list, and the
/// monitored resources.
pub fn no_such_resource(request: &Request, own: &str) -> Refusal {
    let separator = if own.is_empty() { "" } else { ", " };
    let path = &request.path;
    Refusal::new(404, format!("{path}: no such resource; give one of {own}{separator}{MONITORED}"))
}

/// Answers a request of a monitoring system, which may only read metrics and health.
pub fn answer_monitor(service: &dyn Service, request: &Request) -> Response {
    let missing = || Err(no_such_resource(request, ""));
    observe(service, request).unwrap_or_else(missing).unwrap_or_else(Response::from)
}

/// Serves metrics and health, by [`answer_monitor`] in `answer`, to every host that reaches
/// `listener`.
pub fn serve_monitors(
    listener: TcpListener,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> Server {
    let recent = Recent::default();
    Server::start(listener, Limits::for_network(), move |request| recent.answer(&request, &answer))
}

/// Serves `answer` at the control socket, and take-overs by another process, which `hand_over`
/// performs.
pub fn serve<H>(
    socket: ControlSocket,
    limits: Limits,
    program: Program,
    hand_over: H,
    answer: impl Fn(Request) -> Response + Send + Sync + 'static,
) -> Server
where
    H: Fn(&Outgoing) -> Result<Infallible, String> + Send + Sync + 'static,
{
    let (takeover, hand_over) = (TakeoverRoute::new(program), Arc::new(hand_over));
    Server::start(socket, limits, move |request| {
        if request.path.trim_matches('/') != TakeoverRoute::PATH {
            return answer(request);
        }
        let hand_over = hand_over.clone();
        let answered = takeover.answer(request, move |outgoing| hand_over(outgoing));
        answered.unwrap_or_else(Response::from)
    })
}

//! Routes of the control interface.

use std::os::fd::OwnedFd;

use dray_daemon::{Refusal, Request, Response};
use dray_service::{no_such_resource, observe};

use crate::apply::Configuration;
use crate::config::{self, PortConfig, SwitchConfig};
use crate::control::{PortStats, PortStatus, SwitchControl};
use crate::error::SwitchError;

use super::metrics::Observed;

/// Answers `request`.
pub fn answer(
    switch: &dyn SwitchControl,
    config: &Configuration,
    mut request: Request,
) -> Response {
    let descriptors = match (request.method.as_str(), request.path.trim_matches('/')) {
        ("POST", "ports") => Ok(std::mem::take(&mut request.descriptors)),
        _ => request.check_no_descriptors().map(|()| Vec::new()),
    };
    descriptors
        .and_then(|descriptors| route(switch, config, &request, descriptors))
        .unwrap_or_else(Response::from)
}

fn route(
    switch: &dyn SwitchControl,
    configuration: &Configuration,
    request: &Request,
    descriptors: Vec<OwnedFd>,
) -> Result<Response, Refusal> {
    let config = configuration.settings();
    if let Some(observed) = observe(&Observed::new(switch, configuration), request) {
        return observed;
    }
    let segments: Vec<_> = request.path.trim_matches('/').split('/').collect();
    let method = request.method.as_str();
    let has_keys = matches!(
        (segments.as_slice(), method),
        (["table"] | ["stats"], "GET") | (["config"], "PUT") | (["ports"], "POST")
    );
    if !has_keys {
        request.check_keys(&[])?;
    }
    match (segments.as_slice(), method) {
        ([""], "GET") => Ok(Response::json(200, &switch.status())),
        ([""], _) => Err(Refusal::not_allowed(request, "GET")),
        (["ports"], "GET") => Ok(Response::json(200, &switch.ports())),
        (["ports"], "POST") => add_port(switch, config, request, descriptors),
        (["ports"], _) => Err(Refusal::not_allowed(request, "GET, POST")),
        (["ports", name], "GET") => Ok(Response::json(200, &port(switch, name)?)),
        (["ports", name], "DELETE") => {
            switch.remove_port(name)?;
            Ok(Response::done())
        }
        (["ports", _], _) => Err(Refusal::not_allowed(request, "GET, DELETE")),
        (["stats"], "GET") => stats(switch, request),
        (["stats"], _) => Err(Refusal::not_allowed(request, "GET")),
        (["stats", "reset"], "POST") => {
            switch.reset_stats();
            Ok(Response::done())
        }
        (["stats", "reset"], _) => Err(Refusal::not_allowed(request, "POST")),
        (["table"], "GET") => table(switch, request),
        (["table"], "DELETE") => {
            switch.flush_table();
            Ok(Response::done())
        }
        (["table"], _) => Err(Refusal::not_allowed(request, "GET, DELETE")),
        ([dray_capture::PATH], _) => switch.captures().answer(request),
        (["config"], "GET") => {
            let text = SwitchConfig { ports: startable(switch), ..config.clone() }.to_toml();
            Ok(Response::text(200, "application/toml", text))
        }
        (["config"], "PUT") => {
            let text = std::str::from_utf8(&request.body)
                .map_err(|_| Refusal::new(400, "the configuration is not UTF-8 text"))?;
            let dry_run = flag(request, "dry_run")?;
            Ok(Response::json(200, &configuration.apply(switch, text, dry_run)?))
        }
        (["config"], _) => Err(Refusal::not_allowed(request, "GET, PUT")),
        _ => {
            let own = "/, /ports, /ports/NAME, /stats, /stats/reset, /table, /capture, /config";
            Err(no_such_resource(request, own))
        }
    }
}

/// Returns the ports that a switch can be started with. The program that passed descriptors must
/// pass them again; a mirrored port may have been removed.
fn startable(switch: &dyn SwitchControl) -> Vec<PortConfig> {
    let ports = switch.ports().into_iter().map(|port| port.config);
    let mut ports: Vec<_> = ports.filter(|port| port.fd == 0).collect();
    let names: Vec<_> = ports.iter().map(|port| port.name.clone()).collect();
    ports.retain_mut(|port| {
        let was_mirror = !port.mirror.is_empty();
        port.mirror.retain(|name| names.contains(name));
        was_mirror != port.mirror.is_empty()
    });
    ports
}

/// Returns the value of the only key that a request may have, 0 or 1.
fn flag(request: &Request, key: &'static str) -> Result<bool, Refusal> {
    request.check_keys(&[key])?;
    match request.query.first().map(|(_, value)| value.as_str()) {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(Refusal::new(400, format!("{key}={other}: give 0 or 1"))),
    }
}

fn add_port(
    switch: &dyn SwitchControl,
    config: &SwitchConfig,
    request: &Request,
    descriptors: Vec<OwnedFd>,
) -> Result<Response, Refusal> {
    let is_forced = flag(request, "force")?;
    let wanted: PortConfig = config::from_json(&request.body)?;
    config.check_port(&wanted)?;
    if usize::from(wanted.fd) != descriptors.len() {
        let (name, said, came) = (wanted.name.as_str(), wanted.fd, descriptors.len());
        let what = format!(
            "port {name:?}: fd: {said}, but the request has {came} file descriptors; give their number"
        );
        return Err(Refusal::new(400, what));
    }
    if !is_forced {
        switch.check_addresses(&wanted)?;
    }
    switch.add_port(&wanted, descriptors)?;
    let name = wanted.name.as_str();
    Ok(Response::json(201, &port(switch, name)?).with("Location", format!("/ports/{name}")))
}

fn port(switch: &dyn SwitchControl, name: &str) -> Result<PortStatus, SwitchError> {
    let port = switch.ports().into_iter().find(|port| port.config.name == *name);
    port.ok_or_else(|| SwitchError::NoSuchPort(name.to_owned()))
}

fn stats(switch: &dyn SwitchControl, request: &Request) -> Result<Response, Refusal> {
    request.check_keys(&["since"])?;
    match request.query.first().map(|(_, since)| since.as_str()) {
        None => {
            let stats: Vec<_> = switch.ports().into_iter().map(PortStats::from).collect();
            Ok(Response::json(200, &stats))
        }
        Some("reset") => Ok(Response::json(200, &switch.stats_since_reset())),
        Some(other) => Err(Refusal::new(400, format!("since={other}: allowed is reset"))),
    }
}

fn table(switch: &dyn SwitchControl, request: &Request) -> Result<Response, Refusal> {
    request.check_keys(&["port"])?;
    let mut entries = switch.table();
    for (_, name) in &request.query {
        port(switch, name)?;
        entries.retain(|entry| entry.port == **name);
    }
    Ok(Response::json(200, &entries))
}

impl From<SwitchError> for Refusal {
    fn from(error: SwitchError) -> Self {
        let status = match error {
            SwitchError::NoSuchPort(_) => 404,
            SwitchError::NameTaken(_)
            | SwitchError::AddressTaken(..)
            | SwitchError::AddressLearned { .. }
            | SwitchError::Shared { .. }
            | SwitchError::Pair(_)
            | SwitchError::TooManyPorts(..) => 409,
            SwitchError::Sandboxed { .. } | SwitchError::TestTool { .. } => 403,
            SwitchError::Descriptors(_) | SwitchError::Mirror(_) | SwitchError::Config(_) => 400,
            SwitchError::Open(_) => 500,
        };
        Self::new(status, error.to_string())
    }
}

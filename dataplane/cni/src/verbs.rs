//! The operations of a plugin: ADD, CHECK, DEL, GC, STATUS and VERSION. Each can be repeated.

use std::io;

use dray_daemon::Place;
use dray_netdev::Interface;
use dray_switch::client::Client;
use dray_switch::config::Name;
use dray_wire::MacAddr;
use serde_json::{Value, json};

use crate::attachment::{Attachment, end_id, exists, own_mac, switch_error};
use crate::call::{Call, Variables};
use crate::kind::{Kind, Make};
use crate::network::Network;
use crate::reply::{self, CniError, code};
use crate::restore::{forget, forget_detached, reap};
use crate::store::Store;
use crate::{VERSIONS, addresses, ends, ipam, namespace};

/// Standard output and exit status of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// JSON, or nothing.
    pub text: String,
    /// 0, or 1 for an error.
    pub status: u8,
}

/// Carries out the request that `CNI_COMMAND` and other variables describe, with the network
/// configuration `input`.
pub fn run(store: &Store, variables: Variables<'_>, input: &[u8]) -> Output {
    let result = Request { store, variables, input }.run();
    let (value, status) = match result {
        Ok(None) => return Output { text: String::new(), status: 0 },
        Ok(Some(value)) => (value, 0),
        Err(CniError { code, msg }) => {
            let version = version_of(input);
            (json!({"cniVersion": version, "code": code, "msg": msg}), 1)
        }
    };
    Output { text: format!("{value:#}\n"), status }
}

/// Returns the version of the runtime, or our newest if it speaks none of ours.
fn version_of(input: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(input).ok();
    let version = value.and_then(|value| value["cniVersion"].as_str().map(str::to_owned));
    let known = version.filter(|version| VERSIONS.contains(&version.as_str()));
    known.unwrap_or_else(|| VERSIONS[VERSIONS.len() - 1].to_owned())
}

struct Request<'r> {
    store: &'r Store,
    variables: Variables<'r>,
    input: &'r [u8],
}

impl Request<'_> {
    fn run(&self) -> Result<Option<Value>, CniError> {
        match (self.variables)("CNI_COMMAND").as_deref().unwrap_or_default() {
            "ADD" => self.add().map(Some),
            "CHECK" => self.check().map(|()| None),
            "DEL" => self.delete().map(|()| None),
            "GC" => self.collect().map(|()| None),
            "STATUS" => self.status().map(|()| None),
            "VERSION" => Ok(Some(json!({
                "cniVersion": version_of(self.input),
                "supportedVersions": VERSIONS,
            }))),
            other => {
                let what = format!(
                    "CNI_COMMAND={other}: give ADD, CHECK, DEL, GC, STATUS or VERSION; a container \
                     runtime calls this plugin (docs/containers.md)"
                );
                Err(CniError::new(code::INVALID_ENVIRONMENT, what))
            }
        }
    }

    /// Has the IPAM plugin do its part of a request; returns its result, if there is a plugin.
    fn ipam(&self, network: &Network, command: &str) -> Result<Option<Value>, CniError> {
        self.start_ipam(network, command)?.map(ipam::Plugin::finish).transpose()
    }

    /// Starts the IPAM plugin for a request, if there is a plugin.
    fn start_ipam(
        &self,
        network: &Network,
        command: &str,
    ) -> Result<Option<ipam::Plugin>, CniError> {
        let Some(name) = &network.ipam else { return Ok(None) };
        let instead = [("CNI_COMMAND", command)];
        ipam::Plugin::start(name, &instead, self.variables, self.input).map(Some)
    }

    /// Has the IPAM plugin release the addresses of an attachment that is not the request's.
    fn ipam_delete(&self, network: &Network, attachment: &Attachment) -> Result<(), CniError> {
        let Some(name) = &network.ipam else { return Ok(()) };
        let instead = [
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", &attachment.container),
            ("CNI_IFNAME", &attachment.interface),
            ("CNI_NETNS", ""),
        ];
        ipam::Plugin::start(name, &instead, self.variables, self.input)?.finish().map(drop)
    }

    fn add(&self) -> Result<Value, CniError> {
        let network = Network::parse(self.input)?;
        let call = Call::read(self.variables, true)?;
        let (attachment, socket) = plan(self.store, &call, &network)?;
        let key = attachment.key();
        reap(self.store);
        let _lock = self.store.lock(&key).map_err(|error| CniError::io(&key, &error))?;
        let record = |error| CniError::io(&key, &error);
        if let Some(old) = self.store.load(&key).map_err(record)? {
            // An ADD that was killed, or that the runtime repeats.
            self.ipam(&network, "DEL")?;
            forget(self.store, &old)?;
        }
        if network.port_name.is_some() {
            self.check_name(&attachment)?;
        }
        self.store.save(&attachment).map_err(record)?;
        let attached = self.attach(&network, &attachment, socket.as_deref());
        if attached.is_err() {
            // The error that made it fail is the one to report.
            let _ = self.ipam(&network, "DEL");
            let _ = forget(self.store, &attachment);
        }
        attached
    }

    /// Checks that no other container has a port of the same name.
    fn check_name(&self, attachment: &Attachment) -> Result<(), CniError> {
        let others = self.store.all().map_err(|error| CniError::io(&"records", &error))?;
        let name = &attachment.port.name;
        match others.iter().find(|other| other.port.name == *name) {
            None => Ok(()),
            Some(other) => {
                let (name, container) = (name.as_str(), &other.container);
                let what =
                    format!("port: {name:?} is that of container {container}; leave out port");
                Err(CniError::new(code::INVALID_CONFIG, what))
            }
        }
    }

    /// Makes everything that a new record describes.
    fn attach(
        &self,
        network: &Network,
        attachment: &Attachment,
        socket: Option<&str>,
    ) -> Result<Value, CniError> {
        // Before addresses are reserved: it is the most likely reason to fail.
        Client::new(&network.control).status().map_err(|error| switch_error(&error))?;
        let ipam = self.ipam(network, "ADD").or_else(|error| {
            // The IPAM plugin of an ADD that was killed may have gone on, and reserved an address.
            self.ipam(network, "DEL").and_then(|_| self.ipam(network, "ADD")).map_err(|_| error)
        })?;
        attachment.attach(&self.store.ends(), ipam.as_ref())?;
        let info = socket.and_then(|socket| attachment.kind.device_info(socket));
        if let (Some(path), Some(info)) = (&attachment.device_info, info) {
            let failed = |error| CniError::io(&path.display(), &error);
            let place = Place::making(path).map_err(failed)?;
            place.replace(format!("{info:#}\n").as_bytes(), 0o644).map_err(failed)?;
        }
        let mut interface = json!({
            "name": attachment.interface,
            "mac": attachment.mac().map(|mac| mac.to_string()),
            "sandbox": attachment.netns,
        });
        if network.version == "1.1.0" {
            interface["mtu"] = json!(network.mtu);
            if let Some(socket) = socket {
                interface["socketPath"] = json!(socket);
            }
        }
        Ok(reply::result(&network.version, network.previous.as_ref(), interface, ipam.as_ref()))
    }

    fn check(&self) -> Result<(), CniError> {
        let network = Network::parse(self.input)?;
        let call = Call::read(self.variables, true)?;
        let Some(previous) = &network.previous else {
            let what = "prevResult: missing; CHECK compares with the result of ADD";
            return Err(CniError::new(code::INVALID_CONFIG, what));
        };
        let failed = |what: String| CniError::new(code::CHECK_FAILED, what);
        let key = Store::key(&call.container, &call.interface);
        let record = self.store.load(&key).map_err(|error| CniError::io(&key, &error))?;
        let attachment = record
            .ok_or_else(|| failed(format!("{key}: not attached by this plugin; DEL and ADD it")))?;
        if attachment.is_gone() || call.netns.as_ref() != Some(&attachment.netns) {
            let netns = attachment.netns.display();
            return Err(failed(format!("{key}: it was attached in {netns}, which has changed")));
        }
        if !attachment.has_port().map_err(|error| switch_error(&error))? {
            let (name, control) = (attachment.port.name.as_str(), attachment.control.display());
            let what = format!(
                "{key}: the switch at {control} has no port {name:?}; `dray cni restore` adds it"
            );
            return Err(failed(what));
        }
        if attachment.kind == Kind::Tap {
            let expected = addresses_in(previous, &call);
            namespace::within(&attachment.netns, || check_tap(&attachment, &network, &expected))
                .map_err(|error| CniError::io(&attachment.netns.display(), &error))??;
        }
        self.ipam(&network, "CHECK").map(drop)
    }

    fn delete(&self) -> Result<(), CniError> {
        let network = Network::parse(self.input)?;
        let call = Call::read(self.variables, false)?;
        let key = Store::key(&call.container, &call.interface);
        let _lock = self.store.lock(&key).map_err(|error| CniError::io(&key, &error))?;
        let attachment = self.store.load(&key).map_err(|error| CniError::io(&key, &error))?;
        attachment.as_ref().map_or(Ok(()), Attachment::detach)?;
        // Beside the removal of an interface, for which the kernel waits some 20 ms. The switch forwards no
        // frames from the addresses any more, and the bypass ends before the interface.
        let ipam = self.start_ipam(&network, "DEL");
        let forgotten = attachment.map_or(Ok(()), |it| forget_detached(self.store, &it));
        let released = ipam.and_then(|ipam| ipam.map_or(Ok(()), |it| it.finish().map(drop)));
        forgotten.and(released)
    }

    /// Removes the attachments of this network that the runtime does not know.
    fn collect(&self) -> Result<(), CniError> {
        let network = Network::parse(self.input)?;
        let records = self.store.all().map_err(|error| CniError::io(&"records", &error))?;
        let is_stale = |record: &&Attachment| {
            let Attachment { container, interface, .. } = record;
            record.network == network.name
                && !record.is_claim()
                && !network.valid.iter().any(|known| (&known.0, &known.1) == (container, interface))
        };
        let mut result = Ok(());
        for attachment in records.iter().filter(is_stale) {
            let key = attachment.key();
            let removed = self.store.lock(&key).map_err(|error| CniError::io(&key, &error));
            let removed = removed.and_then(|_lock| {
                forget(self.store, attachment)?;
                // Not every plugin implements GC.
                self.ipam_delete(&network, attachment)
            });
            // One that cannot be removed does not keep the others.
            result = result.and(removed);
        }
        reap(self.store);
        result.and(self.ipam(&network, "GC").map(drop))
    }

    fn status(&self) -> Result<(), CniError> {
        let network = Network::parse(self.input)?;
        Client::new(&network.control)
            .status()
            .map_err(|error| CniError::new(code::NOT_AVAILABLE, error.to_string()))?;
        // Some runtimes call this every few seconds, and never GC.
        reap(self.store);
        self.ipam(&network, "STATUS").map(drop)
    }
}

/// Returns the attachment that a request describes, and its socket in the container.
pub(crate) fn plan(
    store: &Store,
    call: &Call,
    network: &Network,
) -> Result<(Attachment, Option<String>), CniError> {
    let netns = call.netns.clone().unwrap_or_default();
    let identity = namespace::identity(&netns).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let netns = netns.display();
            let what = format!("CNI_NETNS={netns}: {error}; the container does not exist");
            CniError::new(code::UNKNOWN_CONTAINER, what)
        }
        _ => CniError::io(&format!("CNI_NETNS={}", netns.display()), &error),
    })?;
    if namespace::is_own(&identity) {
        let what = "it is the plugin's own namespace; give that of a container";
        let what = format!("CNI_NETNS={}: {what}", netns.display());
        return Err(CniError::new(code::INVALID_ENVIRONMENT, what));
    }
    namespace::within(&netns, || ()).map_err(|error| {
        let what = format!("CNI_NETNS={}: {error}; give a network namespace", netns.display());
        CniError::new(code::INVALID_ENVIRONMENT, what)
    })?;
    let (mut attachment, socket) = describe(store, call, network)?;
    attachment.identity = identity;
    Ok((attachment, socket))
}

/// Returns the attachment of a container whose namespace may not exist yet, and its socket.
pub(crate) fn describe(
    store: &Store,
    call: &Call,
    network: &Network,
) -> Result<(Attachment, Option<String>), CniError> {
    let Call { container, interface, .. } = call;
    let key = Store::key(container, interface);
    let name = match &network.port_name {
        Some(name) => name.clone(),
        None => port_name(container, interface)?,
    };
    let directory = (network.kind == Kind::Vhost).then(|| Attachment::directory_of(name.as_str()));
    let (tap, ends) = (ends::tap_name(end_id(&key)), store.ends().netns());
    let make = Make {
        interface,
        ends: (&tap, &ends),
        directory: directory.as_ref(),
        queues: network.queues,
        mtu: network.mtu,
    };
    let (uri, socket) = network.kind.uri(&make);
    // With a TAP interface's comes that of the table of the bypass.
    let fd = if network.kind == Kind::Tap { network.queues + 1 } else { 1 };
    let port = network.port(name, &uri, fd, network.mac.unwrap_or_else(|| own_mac(&key)))?;
    let attachment = Attachment {
        container: container.clone(),
        interface: interface.clone(),
        network: network.name.clone(),
        kind: network.kind,
        netns: call.netns.clone().unwrap_or_default(),
        identity: namespace::Identity::default(),
        control: network.control.clone(),
        port,
        directory,
        device_info: network.device_info.clone().filter(|path| !exists(path)),
        is_moved: false,
        moves_mac: network.move_mac,
    };
    Ok((attachment, socket))
}

/// Returns the name of a container's port: of a long identifier, as much as fits.
fn port_name(container: &str, interface: &str) -> Result<Name, CniError> {
    const CONTAINER_MAX: usize = 48;
    let start = &container[..container.len().min(CONTAINER_MAX)];
    format!("{start}.{interface}")
        .parse()
        .map_err(|error| CniError::new(code::INVALID_ENVIRONMENT, format!("{error}")))
}

/// Returns the addresses that a result lists for the container's interface.
fn addresses_in(result: &Value, call: &Call) -> Vec<(std::net::IpAddr, u8)> {
    let list = |key: &str| result[key].as_array().into_iter().flatten();
    let is_ours = |interface: &&Value| {
        interface["name"] == call.interface.as_str()
            && interface["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty())
    };
    let ours: Vec<_> = list("interfaces")
        .enumerate()
        .filter(|(_, it)| is_ours(it))
        .map(|(at, _)| at as u64)
        .collect();
    let ips = list("ips");
    ips.filter(|ip| ip["interface"].as_u64().is_some_and(|at| ours.contains(&at)))
        .filter_map(reply::address)
        .collect()
}

/// Checks the interface in the container's namespace, which is that of the calling thread.
fn check_tap(
    attachment: &Attachment,
    network: &Network,
    expected: &[(std::net::IpAddr, u8)],
) -> Result<(), CniError> {
    let name = &attachment.interface;
    let failed =
        |what: String| CniError::new(code::CHECK_FAILED, format!("interface {name}: {what}"));
    let io = |error: std::io::Error| failed(error.to_string());
    let interface = Interface::find(name).map_err(io)?;
    let mac = MacAddr(interface.mac().map_err(io)?);
    // A chained plugin may change both, except that the switch drops frames from another address.
    if attachment.port.spoof_check && Some(mac) != attachment.mac() {
        let ours = attachment.mac().map(|mac| mac.to_string()).unwrap_or_default();
        return Err(failed(format!("address {mac} instead of {ours}: its frames are dropped")));
    }
    if !interface.is_up().map_err(io)? {
        return Err(failed("it is down".to_owned()));
    }
    let mtu = interface.mtu().map_err(io)?;
    if mtu > network.mtu {
        return Err(failed(format!("MTU {mtu}; the port carries {}", network.mtu)));
    }
    let there = addresses::of(name).map_err(io)?;
    match expected.iter().find(|address| !there.contains(address)) {
        None => Ok(()),
        Some((address, len)) => Err(failed(format!("address {address}/{len} is missing"))),
    }
}

//! The operations of a plugin: ADD, CHECK, DEL, GC, STATUS and VERSION. Each can be repeated.

use dray_netdev::Interface;
use dray_socket::Place;
use dray_switch::client::Client;
use dray_wire::MacAddr;
use serde_json::{Value, json};

use crate::attachment::{Attachment, key_of, switch_error};
use crate::call::{Call, Variables};
use crate::kind::Kind;
use crate::network::{NEWEST, Network, VERSIONS};
use crate::plan::plan;
use crate::records::Records;
use crate::reply::{self, CniError, Output, code};
use crate::restore::{forget, forget_detached, reap, replace};
use crate::{addresses, ipam, namespace};

/// Carries out the request that `CNI_COMMAND` and other variables describe, with the network
/// configuration `input`.
pub fn run(records: &Records, variables: Variables<'_>, input: &[u8]) -> Output {
    Output::new(
        Request { records, variables, input }.run(),
        |CniError { code, msg }| json!({"cniVersion": version_of(input), "code": code, "msg": msg}),
    )
}

/// Returns the version of the runtime, or our newest if it speaks none of ours.
fn version_of(input: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(input).ok();
    let version = value.and_then(|value| value["cniVersion"].as_str().map(str::to_owned));
    let known = version.filter(|version| VERSIONS.contains(&version.as_str()));
    known.unwrap_or_else(|| NEWEST.to_owned())
}

struct Request<'r> {
    records: &'r Records,
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

    /// Runs the IPAM plugin for a request; returns its result, if there is a plugin.
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

    /// Releases, by the IPAM plugin, the addresses of an attachment that is not the request's.
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
        let (attachment, socket) = plan(self.records, &call, &network)?;
        reap(self.records);
        if network.port_name.is_some() {
            self.check_name(&attachment)?;
        }
        let attach = || self.attach(&network, &attachment, socket.as_deref());
        replace(self.records, &attachment, attach, || self.ipam(&network, "DEL").map(drop))
    }

    /// Checks that no other container has a port of the same name.
    fn check_name(&self, attachment: &Attachment) -> Result<(), CniError> {
        let others = self.records.all().map_err(|error| CniError::io(&"records", &error))?;
        let name = &attachment.port.name;
        let has_name =
            |other: &&Attachment| other.port.name == *name && other.key() != attachment.key();
        let Some(other) = others.iter().find(has_name) else { return Ok(()) };
        let (name, container) = (name.as_str(), &other.container);
        let what = format!("port: {name:?} is that of container {container}; leave out port");
        Err(CniError::invalid(what))
    }

    /// Creates everything that a new record describes.
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
        attachment.attach(&self.records.ends(), ipam.as_ref())?;
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
            return Err(CniError::invalid(what));
        };
        let failed = |what: String| CniError::new(code::CHECK_FAILED, what);
        let key = key_of(&call.container, &call.interface);
        let attachment = self
            .records
            .load(&key)?
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
        let key = key_of(&call.container, &call.interface);
        let _lock = self.records.lock(&key)?;
        let attachment = self.records.load(&key)?;
        attachment.as_ref().map_or(Ok(()), Attachment::detach)?;
        // Beside the removal of an interface, for which the kernel waits some 20 ms. The switch
        // forwards no frames from the addresses any more, and the bypass ends before the
        // interface.
        let ipam = self.start_ipam(&network, "DEL");
        let forgotten = match attachment {
            Some(attachment) => forget_detached(self.records, &attachment),
            // A killed ADD may have left an unfinished record.
            None => self.records.remove(&key),
        };
        let released = ipam.and_then(|ipam| ipam.map_or(Ok(()), |it| it.finish().map(drop)));
        forgotten.and(released)
    }

    /// Removes the attachments of this network that the runtime does not know.
    fn collect(&self) -> Result<(), CniError> {
        let network = Network::parse(self.input)?;
        let records = self.records.all().map_err(|error| CniError::io(&"records", &error))?;
        let is_stale = |record: &&Attachment| {
            let Attachment { container, interface, .. } = record;
            record.network == network.name
                && !record.is_claim()
                && !network.valid.iter().any(|known| (&known.0, &known.1) == (container, interface))
        };
        let mut result = Ok(());
        for attachment in records.iter().filter(is_stale) {
            let removed = self.records.lock(&attachment.key()).and_then(|_lock| {
                forget(self.records, attachment)?;
                // Not every plugin implements GC.
                self.ipam_delete(&network, attachment)
            });
            // An attachment that cannot be removed must not keep the others.
            result = result.and(removed);
        }
        reap(self.records);
        result.and(self.ipam(&network, "GC").map(drop))
    }

    fn status(&self) -> Result<(), CniError> {
        let network = Network::parse(self.input)?;
        Client::new(&network.control)
            .status()
            .map_err(|error| CniError::new(code::NOT_AVAILABLE, error.to_string()))?;
        // Some runtimes call this every few seconds, and never GC.
        reap(self.records);
        self.ipam(&network, "STATUS").map(drop)
    }
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

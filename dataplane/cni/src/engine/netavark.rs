//! Podman: a netavark plugin (`plugin-API.md`, version 1.0.0). Each command reads JSON and
//! writes JSON.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::options::Options;
use super::{attach, detach};
use crate::attachment::key_of;
use crate::call::{Call, check_netns, is_identifier};
use crate::kind::Kind;
use crate::network::{STATION, station};
use crate::plan::plan;
use crate::records::Records;
use crate::reply::{CniError, Output, code, network};

/// Kinds whose sockets need no mount: the plugin cannot add one.
const KINDS: [Kind; 3] = [Kind::Tap, Kind::Memif, Kind::Virtio];

/// A command of netavark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Netavark {
    /// Check and complete a new network.
    Create,
    /// Attach a container, whose network namespace has this file.
    Setup(PathBuf),
    /// Detach a container.
    Teardown,
    /// Report versions.
    Info,
}

/// Carries out a command of netavark, which reads `input`.
pub fn netavark(records: &Records, command: &Netavark, input: &[u8]) -> Output {
    let done = match command {
        Netavark::Create => create(input).map(Some),
        Netavark::Setup(netns) => setup(records, netns, input).map(Some),
        Netavark::Teardown => teardown(records, input).map(|()| None),
        Netavark::Info => {
            Ok(Some(json!({"version": env!("CARGO_PKG_VERSION"), "api_version": "1.0.0"})))
        }
    };
    Output::new(done, |error| json!({"error": error.msg}))
}

/// Input of `setup` and `teardown`; other fields do not matter here.
#[derive(Deserialize)]
struct Container {
    container_id: String,
    network: Map<String, Value>,
    network_options: PerNetwork,
    #[serde(default)]
    port_mappings: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct PerNetwork {
    interface_name: String,
    #[serde(default)]
    static_ips: Option<Vec<IpAddr>>,
    #[serde(default)]
    static_mac: Option<String>,
}

impl Container {
    fn parse(input: &[u8]) -> Result<Self, CniError> {
        let container: Self = serde_json::from_slice(input).map_err(|error| decoding(&error))?;
        for name in [&container.container_id, &container.network_options.interface_name] {
            if !is_identifier(name) {
                let what = "give the name of a container and an interface";
                return Err(CniError::invalid(format!("{name:?}: {what}")));
            }
        }
        Ok(container)
    }

    fn call(&self, netns: Option<PathBuf>) -> Call {
        let (container, interface) =
            (self.container_id.clone(), self.network_options.interface_name.clone());
        Call { container, interface, netns }
    }
}

fn decoding(error: &serde_json::Error) -> CniError {
    CniError::new(code::DECODING_FAILURE, format!("input of netavark: {error}"))
}

fn options(network: &Map<String, Value>) -> Result<Options, CniError> {
    let none = Map::new();
    let options = network.get("options").and_then(Value::as_object).unwrap_or(&none);
    let name = network.get("name").and_then(Value::as_str).unwrap_or_default();
    // A runtime that speaks CNI may have a network of the same name, and collect what it does not
    // know.
    Options::parse(&format!("podman:{name}"), options, &KINDS)
}

fn create(input: &[u8]) -> Result<Value, CniError> {
    let mut network: Map<String, Value> =
        serde_json::from_slice(input).map_err(|error| decoding(&error))?;
    options(&network)?;
    let has_subnets =
        network.get("subnets").and_then(Value::as_array).is_some_and(|subnets| !subnets.is_empty());
    let driver = network.get("ipam_options").and_then(|ipam| ipam["driver"].as_str());
    match (driver, has_subnets) {
        (Some("none"), _) | (Some("host-local"), true) => {}
        (None, true) => {
            network.insert("ipam_options".to_owned(), json!({"driver": "host-local"}));
        }
        (None | Some("host-local"), false) => {
            let what = "subnets: missing; give --subnet, for example --subnet 10.90.0.0/16, or \
                        --ipam-driver none for containers without addresses";
            return Err(CniError::invalid(what));
        }
        (Some(other), _) => {
            return Err(CniError::invalid(format!(
                "--ipam-driver {other}: give host-local or none"
            )));
        }
    }
    // Podman's name server runs only for bridges.
    network.insert("dns_enabled".to_owned(), json!(false));
    Ok(Value::Object(network))
}

fn setup(records: &Records, netns: &Path, input: &[u8]) -> Result<Value, CniError> {
    let container = Container::parse(input)?;
    check_netns("", netns)?;
    if container.port_mappings.as_ref().is_some_and(|mappings| !mappings.is_empty()) {
        let what = "--publish: the host has no address in this network, so it forwards nothing; \
                    leave out --publish, or connect the container to a bridge network too";
        return Err(CniError::invalid(what));
    }
    let Options { network: mut config, default_route } = options(&container.network)?;
    if let Some(mac) = &container.network_options.static_mac {
        let wrong = || CniError::invalid(format!("--mac-address {mac}: {STATION}"));
        config.mac = Some(station(mac).ok_or_else(wrong)?);
    }
    let addresses = addresses(&container, default_route)?;
    let (attachment, _) = plan(records, &container.call(Some(netns.to_owned())), &config)?;
    attach(records, &attachment, Some(&addresses))?;
    let list = |key: &str| addresses[key].as_array().into_iter().flatten();
    let has_route = list("routes").next().is_some();
    // Podman shows the gateway as that of the container.
    let subnets = list("ips").map(|ip| match has_route {
        true => json!({"ipnet": ip["address"], "gateway": ip["gateway"]}),
        false => json!({"ipnet": ip["address"]}),
    });
    let subnets: Vec<_> = subnets.collect();
    let mac = attachment.mac().map(|mac| mac.to_string());
    Ok(json!({
        "dns_search_domains": [],
        "dns_server_ips": [],
        "interfaces": {attachment.interface: {"mac_address": mac, "subnets": subnets}},
    }))
}

/// Returns a container's addresses and routes, in the form of an IPAM plugin's result.
fn addresses(container: &Container, default_route: bool) -> Result<Value, CniError> {
    let subnets = container.network.get("subnets").and_then(Value::as_array);
    let subnets: Vec<_> = subnets.into_iter().flatten().filter_map(Subnet::parse).collect();
    let (mut ips, mut routes) = (Vec::new(), Vec::new());
    for address in container.network_options.static_ips.iter().flatten() {
        let subnet = subnets.iter().find(|subnet| subnet.contains(*address)).ok_or_else(|| {
            CniError::invalid(format!("address {address} is in no subnet of the network"))
        })?;
        let mut ip = json!({"address": format!("{address}/{}", subnet.len)});
        if let Some(gateway) = subnet.gateway {
            ip["gateway"] = json!(gateway);
            if default_route {
                let to = if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
                routes.push(json!({"dst": to, "gw": gateway}));
            }
        }
        ips.push(ip);
    }
    Ok(json!({"ips": ips, "routes": routes}))
}

fn teardown(records: &Records, input: &[u8]) -> Result<(), CniError> {
    let container = Container::parse(input)?;
    let Call { container, interface, .. } = container.call(None);
    detach(records, &key_of(&container, &interface))
}

struct Subnet {
    address: IpAddr,
    len: u8,
    gateway: Option<IpAddr>,
}

impl Subnet {
    fn parse(subnet: &Value) -> Option<Self> {
        let (address, len) = network(subnet["subnet"].as_str()?)?;
        let gateway = subnet["gateway"].as_str().and_then(|text| text.parse().ok());
        Some(Self { address, len, gateway })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let start = |bits: u128, width: u32| {
            bits.checked_shr(width - u32::from(self.len)).unwrap_or_default()
        };
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let [own, other] = [own, other].map(|ip| start(ip.to_bits().into(), 32));
                own == other
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let [own, other] = [own, other].map(|ip| start(ip.to_bits(), 128));
                own == other
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &Netavark, input: &Value) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let output = netavark(&Records::at(folder.path()), command, input.to_string().as_bytes());
        serde_json::from_str(&output.text).unwrap_or_else(|_| panic!("{output:?}"))
    }

    #[test]
    fn network_is_completed_or_refused() {
        let network = json!({
            "name": "n", "id": "1", "driver": "dray-netavark", "dns_enabled": true,
            "subnets": [{"subnet": "10.1.0.0/16"}], "options": {"vlan": "5"},
        });
        let created = run(&Netavark::Create, &network);
        assert_eq!(created["ipam_options"]["driver"], "host-local");
        assert_eq!((&created["dns_enabled"], &created["id"]), (&json!(false), &json!("1")));
        for (key, value, part) in [
            ("subnets", json!([]), "give --subnet"),
            ("subnets", json!(null), "give --subnet"),
            ("options", json!({"vlna": "5"}), "vlna=5: unknown: did you mean vlan?"),
            ("options", json!({"kind": "vhost"}), "give tap or memif or virtio"),
            ("ipam_options", json!({"driver": "dhcp"}), "--ipam-driver dhcp: give host-local"),
        ] {
            let mut network = network.clone();
            network[key] = value;
            let error = run(&Netavark::Create, &network)["error"].as_str().unwrap().to_owned();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(run(&Netavark::Info, &json!({}))["api_version"], "1.0.0");
    }

    #[test]
    fn invalid_container_is_named() {
        let container = json!({
            "container_id": "c", "network": {"name": "n", "subnets": [{"subnet": "10.1.0.0/16"}]},
            "network_options": {"interface_name": "eth0", "static_ips": ["10.1.0.2"]},
        });
        for (pointer, value, part) in [
            ("/container_id", json!("../c"), "\"../c\": give the name"),
            ("/network_options/interface_name", json!("a/b"), "\"a/b\": give the name"),
            ("/network_options/static_ips", json!(["10.2.0.2"]), "10.2.0.2 is in no subnet"),
            (
                "/network_options/static_mac",
                json!("01:00:00:00:00:01"),
                "--mac-address 01:00:00:00:00:01: give",
            ),
            ("/port_mappings", json!([{"host_port": 80}]), "leave out --publish"),
            ("/network", json!(7), "input of netavark: invalid type"),
        ] {
            let mut container = container.clone();
            match container.pointer_mut(pointer) {
                Some(place) => *place = value,
                None => {
                    let (above, key) = pointer.rsplit_once('/').unwrap();
                    container.pointer_mut(above).unwrap()[key] = value;
                }
            }
            let setup = Netavark::Setup("/nosuch".into());
            let error = run(&setup, &container)["error"].as_str().unwrap().to_owned();
            assert!(error.contains(part), "{error}");
        }
        let setup = Netavark::Setup("/nosuch".into());
        let error = run(&setup, &container)["error"].as_str().unwrap().to_owned();
        assert!(error.contains("/nosuch"), "{error}");
    }

    #[test]
    fn address_gets_prefix_and_route_of_its_subnet() {
        let container = json!({
            "container_id": "c",
            "network": {"subnets": [
                {"subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}, {"subnet": "fd00::/64"},
            ]},
            "network_options": {"interface_name": "eth0", "static_ips": ["fd00::2", "10.1.0.2"]},
        });
        let container: Container = serde_json::from_value(container).unwrap();
        let found = addresses(&container, true).unwrap();
        assert_eq!(found["ips"][0], json!({"address": "fd00::2/64"}));
        assert_eq!(found["ips"][1], json!({"address": "10.1.0.2/16", "gateway": "10.1.0.1"}));
        assert_eq!(found["routes"], json!([{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]));
        assert_eq!(addresses(&container, false).unwrap()["routes"], json!([]));
        // The length of a prefix is that of its family, so no shift exceeds the address.
        assert!(
            Subnet::parse(&json!({"subnet": "0.0.0.0/0"})).unwrap().contains([1, 2, 3, 4].into())
        );
    }
}

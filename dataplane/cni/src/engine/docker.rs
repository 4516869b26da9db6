//! Docker network driver: libnetwork's remote driver (its `docs/remote.md`), HTTP with JSON at a
//! Unix socket.
//!
//! Docker creates a container's network namespace after it has asked for an interface. So the
//! driver makes the interface beside itself, and Docker moves it into the container, and renames
//! it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use dray_daemon::{Request, Response};
use dray_wire::MacAddr;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::networks::{Networks, Saved};
use super::options::Options;
use super::{attach, detach};
use crate::attachment::{key_of, own_mac};
use crate::call::{Call, check_netns, is_identifier};
use crate::kind::Kind;
use crate::network::{STATION, station};
use crate::plan::describe;
use crate::records::Records;
use crate::reply::{CniError, code, network};
use crate::restore::reap;

/// Key of the user's options in those of a network.
const GENERIC: &str = "com.docker.network.generic";
/// Name of the option `mtu` among Docker's drivers.
const MTU: &str = "com.docker.network.driver.mtu";
/// Start of an interface's name in a container.
const PREFIX: &str = "eth";

/// The driver.
pub struct Docker {
    records: Records,
    networks: Networks,
    /// Addresses of the endpoints that containers have not joined, by identifier.
    endpoints: Mutex<HashMap<String, MacAddr>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NewNetwork {
    #[serde(rename = "NetworkID")]
    network: String,
    #[serde(default)]
    options: Option<Map<String, Value>>,
    #[serde(rename = "IPv4Data", default)]
    v4: Option<Vec<Pool>>,
    #[serde(rename = "IPv6Data", default)]
    v6: Option<Vec<Pool>>,
}

#[derive(Deserialize)]
struct Pool {
    #[serde(rename = "Gateway", default)]
    gateway: String,
}

#[derive(Deserialize)]
struct OldNetwork {
    #[serde(rename = "NetworkID")]
    network: String,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "NetworkID")]
    network: String,
    #[serde(rename = "EndpointID")]
    endpoint: String,
    #[serde(rename = "Interface", default)]
    interface: Option<Address>,
    #[serde(rename = "SandboxKey", default)]
    sandbox: PathBuf,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "MacAddress", default)]
    mac: String,
}

impl Docker {
    /// Creates a driver that keeps its networks in `networks`, and removes what is left of
    /// containers that ended without it.
    pub fn new(records: Records, networks: PathBuf) -> Self {
        reap(&records);
        Self { records, networks: Networks::at(networks), endpoints: Mutex::default() }
    }

    /// Carries out a request of Docker.
    pub fn answer(&self, request: &Request) -> Response {
        let method = request.path.trim_start_matches('/');
        let done = request
            .check_no_descriptors()
            .map_err(|refusal| CniError::invalid(refusal.what))
            .and_then(|()| self.call(method, &request.body));
        match done {
            Ok(Some(reply)) => Response::json(200, &reply),
            // Docker does not need methods that a driver lacks.
            Ok(None) => Response::json(404, &json!({"Err": format!("{method}: no such method")})),
            Err(error) => Response::json(500, &json!({"Err": error.msg})),
        }
    }

    /// Calls a method; returns `None` if the driver has no method of this name.
    fn call(&self, method: &str, body: &[u8]) -> Result<Option<Value>, CniError> {
        let done = match method {
            "Plugin.Activate" => json!({"Implements": ["NetworkDriver"]}),
            "NetworkDriver.GetCapabilities" => {
                json!({"Scope": "local", "ConnectivityScope": "local"})
            }
            "NetworkDriver.CreateNetwork" => self.create_network(&parse(body)?)?,
            "NetworkDriver.DeleteNetwork" => {
                let OldNetwork { network } = parse(body)?;
                self.networks.remove(checked(&network)?)?;
                json!({})
            }
            "NetworkDriver.CreateEndpoint" => self.create_endpoint(&parse(body)?)?,
            "NetworkDriver.DeleteEndpoint" => self.delete_endpoint(&parse(body)?)?,
            "NetworkDriver.Join" => self.join(&parse(body)?)?,
            // Docker then takes the interface back, and deletes the endpoint.
            "NetworkDriver.Leave" => json!({}),
            "NetworkDriver.EndpointOperInfo" => json!({"Value": {}}),
            _ => return Ok(None),
        };
        Ok(Some(done))
    }

    fn create_network(&self, new: &NewNetwork) -> Result<Value, CniError> {
        let id = checked(&new.network)?;
        let given = new.options.as_ref().and_then(|options| options.get(GENERIC));
        let mut options = given.and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some(mtu) = options.remove(MTU) {
            options.insert("mtu".to_owned(), mtu);
        }
        Options::parse(id, &options, &[Kind::Tap])?;
        // Docker gives the length of the prefix too.
        let gateway = |pools: &Option<Vec<Pool>>| {
            let pool = pools.iter().flatten().next()?;
            network(&pool.gateway).map(|(address, _)| address.to_string())
        };
        let saved = Saved { options, gateway: gateway(&new.v4), gateway_v6: gateway(&new.v6) };
        self.networks.save(id, &saved)?;
        Ok(json!({}))
    }

    fn network(&self, id: &str) -> Result<(Options, Saved), CniError> {
        let saved = self.networks.load(checked(id)?)?.ok_or_else(|| {
            CniError::invalid(format!(
                "network {id} is unknown to this driver; remove and create it"
            ))
        })?;
        Ok((Options::parse(&format!("docker:{id}"), &saved.options, &[Kind::Tap])?, saved))
    }

    /// Keeps the address of an endpoint, which Docker does not repeat when a container joins.
    fn create_endpoint(&self, request: &Endpoint) -> Result<Value, CniError> {
        self.network(&request.network)?;
        let id = checked(&request.endpoint)?;
        let given = request.interface.as_ref().map(|interface| interface.mac.as_str());
        let (mac, reply) = match given.filter(|mac| !mac.is_empty()) {
            Some(text) => {
                let wrong = || CniError::invalid(format!("--mac-address {text}: {STATION}"));
                (station(text).ok_or_else(wrong)?, json!({}))
            }
            None => {
                let mac = own_mac(id);
                (mac, json!({"Interface": {"MacAddress": mac.to_string()}}))
            }
        };
        self.endpoints().insert(id.to_owned(), mac);
        Ok(reply)
    }

    fn endpoints(&self) -> std::sync::MutexGuard<'_, HashMap<String, MacAddr>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, request: &Endpoint) -> Result<Value, CniError> {
        let (Options { mut network, default_route }, saved) = self.network(&request.network)?;
        let id = checked(&request.endpoint)?;
        check_netns("SandboxKey ", &request.sandbox)?;
        network.mac = self.endpoints().get(id).copied();
        if network.mac.is_none() {
            let what = "this driver was started since it was created; start the container again";
            return Err(CniError::invalid(format!("endpoint {id}: {what}")));
        }
        let interface = interface_of(id);
        let call = Call {
            container: id.to_owned(),
            interface: interface.clone(),
            netns: Some(request.sandbox.clone()),
        };
        let (mut attachment, _) = describe(&self.records, &call, &network)?;
        attachment.is_moved = true;
        attach(&self.records, &attachment, None)?;
        let mut reply = json!({
            "InterfaceName": {"SrcName": interface, "DstPrefix": PREFIX},
            // Without it, Docker connects the container to a bridge of its own.
            "DisableGatewayService": true,
        });
        if default_route {
            reply["Gateway"] = json!(saved.gateway.unwrap_or_default());
            reply["GatewayIPv6"] = json!(saved.gateway_v6.unwrap_or_default());
        }
        Ok(reply)
    }

    fn delete_endpoint(&self, request: &Endpoint) -> Result<Value, CniError> {
        let id = checked(&request.endpoint)?;
        self.endpoints().remove(id);
        detach(&self.records, &key_of(id, &interface_of(id)))?;
        reap(&self.records);
        Ok(json!({}))
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, CniError> {
    serde_json::from_slice(body).map_err(|error| {
        CniError::new(code::DECODING_FAILURE, format!("request of Docker: {error}"))
    })
}

/// Checks an identifier, which is part of a file's name.
fn checked(id: &str) -> Result<&str, CniError> {
    match is_identifier(id) {
        true => Ok(id),
        false => Err(CniError::invalid(format!("identifier {id:?}: give letters and digits"))),
    }
}

/// Returns the name of an endpoint's interface until Docker renames it.
fn interface_of(endpoint: &str) -> String {
    let start: String = endpoint.chars().take(10).collect();
    format!("dray-{start}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(folder: &tempfile::TempDir) -> Docker {
        Docker::new(Records::at(folder.path().join("cni")), folder.path().join("docker"))
    }

    fn call(docker: &Docker, method: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let path = format!("/{method}");
        let request = Request { method: "POST".to_owned(), path, body, ..Request::default() };
        let reply = docker.answer(&request);
        let value: Value = serde_json::from_slice(&reply.body).unwrap();
        match value["Err"].as_str() {
            Some(error) => Err(format!("{} {error}", reply.status)),
            None => Ok(value),
        }
    }

    #[test]
    fn network_survives_restart_of_driver() {
        let folder = tempfile::tempdir().unwrap();
        let network = json!({
            "NetworkID": "a1", "Options": {GENERIC: {MTU: "9000", "vlan": "7"}},
            "IPv4Data": [{"AddressSpace": "", "Pool": "10.1.0.0/16", "Gateway": "10.1.0.1/16"}],
            "IPv6Data": [],
        });
        call(&driver(&folder), "NetworkDriver.CreateNetwork", &network).unwrap();
        let docker = driver(&folder);
        let (options, saved) = docker.network("a1").unwrap();
        assert_eq!((options.network.mtu, saved.gateway.as_deref()), (9000, Some("10.1.0.1")));
        let endpoint = json!({"NetworkID": "a1", "EndpointID": "b2", "Interface": {}});
        let reply = call(&docker, "NetworkDriver.CreateEndpoint", &endpoint).unwrap();
        let mac = reply["Interface"]["MacAddress"].as_str().unwrap().to_owned();
        assert!(mac.parse::<MacAddr>().unwrap().is_station());
        // Docker refuses an address in reply to its own.
        let given =
            json!({"NetworkID": "a1", "EndpointID": "b3", "Interface": {"MacAddress": mac}});
        assert_eq!(call(&docker, "NetworkDriver.CreateEndpoint", &given), Ok(json!({})));
        call(&docker, "NetworkDriver.DeleteNetwork", &json!({"NetworkID": "a1"})).unwrap();
        assert!(docker.network("a1").is_err());
    }

    #[test]
    fn invalid_request_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let docker = driver(&folder);
        let activated = call(&docker, "Plugin.Activate", &Value::Null).unwrap();
        assert_eq!(activated, json!({"Implements": ["NetworkDriver"]}));
        call(&docker, "NetworkDriver.CreateNetwork", &json!({"NetworkID": "a1"})).unwrap();
        let endpoint = json!({"NetworkID": "a1", "EndpointID": "b2", "SandboxKey": "/a"});
        let changed = |key: &str, value: Value| {
            let mut endpoint = endpoint.clone();
            endpoint[key] = value;
            endpoint
        };
        let options = |options: Value| json!({"NetworkID": "a1", "Options": {GENERIC: options}});
        for (method, body, part) in [
            ("DiscoverNew", json!({}), "404 NetworkDriver.DiscoverNew: no such method"),
            ("CreateNetwork", json!({}), "500 request of Docker: missing field `NetworkID`"),
            ("CreateNetwork", json!({"NetworkID": "../a"}), "identifier \"../a\": give"),
            ("CreateNetwork", options(json!({"vlna": "1"})), "unknown: did you mean vlan?"),
            ("CreateNetwork", options(json!({"kind": "memif"})), "option kind=memif: give tap;"),
            ("CreateEndpoint", changed("NetworkID", json!("c")), "network c is unknown"),
            ("CreateEndpoint", changed("EndpointID", json!("/")), "identifier \"/\": give"),
            (
                "CreateEndpoint",
                changed("Interface", json!({"MacAddress": "01:00:00:00:00:01"})),
                "--mac-address 01:00:00:00:00:01: give",
            ),
            ("Join", endpoint.clone(), "endpoint b2: this driver was started since"),
            ("Join", changed("SandboxKey", json!("a")), "SandboxKey a: give the absolute path"),
        ] {
            let error = call(&docker, &format!("NetworkDriver.{method}"), &body).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        // A repeated request deletes an endpoint or a network that no longer exists.
        call(&docker, "NetworkDriver.DeleteEndpoint", &endpoint).unwrap();
        call(&docker, "NetworkDriver.DeleteNetwork", &json!({"NetworkID": "x"})).unwrap();
    }
}

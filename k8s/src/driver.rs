//! Prepares claims: for each allocated device a port of the switch, and what their containers see
//! of it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use dray_cni::Records;
use dray_cni::cdi::{Device, Mount, Specification};
use dray_cni::claim::{self, Claim, ClaimPort};
use dray_socket::{Place, find_own_directory, own_directory};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::allocation::{Allocated, Allocation, is_name};
use crate::message;
use crate::metadata::{self, Port};
use crate::proto;
use crate::settings::Settings;

/// Time that the driver waits for the API server's reply. The kubelet waits longer, and then tries
/// again.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Directory of the descriptions of claims' ports on the host.
const DESCRIPTIONS: &str = "/run/dray/claims";
/// Directory of the sockets in containers.
const SOCKETS: &str = "/run/dray";
/// Longest path of a socket, without the zero behind it (unix(7)).
const SOCKET_MAX: usize = 107;

/// The driver of a node. A claim is prepared by the records of its ports, its description and its
/// CDI specification, all of which are files: it has no other state.
#[derive(Clone)]
pub struct Driver(Arc<Inner>);

struct Inner {
    settings: Settings,
    client: kube::Client,
    records: Records,
    descriptions: PathBuf,
}

impl Driver {
    /// Creates a driver that reads claims from the API server of `client`.
    pub fn new(settings: Settings, client: kube::Client) -> Self {
        let (records, descriptions) =
            (Records::default(), dray_daemon::default_control(DESCRIPTIONS));
        Self(Arc::new(Inner { settings, client, records, descriptions }))
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Prepares a claim. Changes nothing that a container uses if the claim is prepared already.
    pub async fn prepare(&self, claim: &proto::Claim) -> anyhow::Result<Vec<proto::Device>> {
        let proto::Claim { namespace, name, uid } = claim;
        let claims: Api<ResourceClaim> = Api::namespaced(self.0.client.clone(), namespace);
        let found = timeout(TIMEOUT, claims.get(name)).await;
        let found = found.context("the API server does not reply");
        let found = found.and_then(|found| found.map_err(|error| anyhow!(message(&error))));
        let found = found.with_context(|| format!("claim {namespace}/{name}"))?;
        let allocation = Allocation::of(&found, &self.0.settings.driver)?;
        let now = &allocation.uid;
        ensure!(now == uid, "claim {namespace}/{name}: its UID is {now}, not {uid}: it is another");
        let inner = self.0.clone();
        spawn_blocking(move || inner.prepare(&allocation)).await?
    }

    /// Reverts [`prepare`](Self::prepare); succeeds for an unknown claim too.
    pub async fn unprepare(&self, uid: &str) -> anyhow::Result<()> {
        let (inner, uid) = (self.0.clone(), uid.to_owned());
        spawn_blocking(move || inner.unprepare(&uid)).await?
    }
}

impl Inner {
    fn prepare(&self, allocation: &Allocation) -> anyhow::Result<Vec<proto::Device>> {
        let Settings { driver, control, cdi, .. } = &self.settings;
        let directories = directories(allocation)?;
        let owner = format!("{}/{}", allocation.namespace, allocation.name);
        let claim = Claim { uid: &allocation.uid, owner: &owner, control };
        let parameters: Vec<_> = allocation.devices.iter().map(|it| &it.parameters).collect();
        let ports = claim::prepare(&self.records, claim, &parameters)
            .with_context(|| format!("claim {owner}"))?;
        let mut devices = Vec::new();
        for (port, container) in ports.iter().zip(&directories) {
            devices.push(Device {
                name: port.name.to_string(),
                mounts: vec![Mount {
                    host: port.directory.clone(),
                    container: container.clone(),
                    read_only: port.read_only,
                }],
            });
        }
        let described = ports.iter().zip(&directories);
        let described: Vec<_> =
            described.map(|(port, container)| self.describe(port, container)).collect();
        let mut files = HashMap::new();
        for request in requests(allocation) {
            let (device, mount) = self.write_description(allocation, request, &described)?;
            files.insert(request, devices.len());
            devices.push(Device { name: device, mounts: vec![mount] });
        }
        let specification = Specification::of_claim(driver, &allocation.uid, devices);
        let folder = || format!("CDI specification in {}", cdi.display());
        specification.save(cdi).with_context(folder)?;
        let name = |at: usize| specification.qualified_name(&specification.devices()[at]);
        let devices = allocation.devices.iter().enumerate().map(|(at, allocated)| {
            let mut ids = vec![name(at)];
            // The description comes with the first device of its request.
            ids.extend(files.remove(allocated.base_request()).map(name));
            proto::Device {
                request_names: vec![allocated.request.clone()],
                pool_name: allocated.pool.clone(),
                device_name: allocated.device.clone(),
                cdi_device_ids: ids,
            }
        });
        Ok(devices.collect())
    }

    fn describe(&self, port: &ClaimPort, container: &Path) -> Port {
        Port {
            name: port.name.to_string(),
            switch: self.settings.switch(),
            kind: port.kind,
            mac: port.mac.to_string(),
            mtu: port.mtu,
            socket: container.join(port.kind.socket_name()),
        }
    }

    /// Writes the description of a request's ports. Returns its name as a device, and its mount.
    fn write_description(
        &self,
        allocation: &Allocation,
        base_request: &str,
        ports: &[Port],
    ) -> anyhow::Result<(String, Mount)> {
        let driver = &self.settings.driver;
        let all = allocation.devices.iter().zip(ports);
        let ports: Vec<(&Allocated, &Port)> =
            all.filter(|(allocated, _)| allocated.base_request() == base_request).collect();
        let request = ports.first().map_or(base_request, |(allocated, _)| &allocated.request);
        let text = metadata::describe(allocation, driver, request, &ports);
        let folder = self.descriptions.join(&allocation.uid);
        let host = folder.join(format!("{base_request}.json"));
        own_directory(&self.descriptions, 0o700)
            .and_then(|_| own_directory(&folder, 0o700))
            // Containers that have mounted an earlier file keep its content.
            .and_then(|_| Place::of(&host)?.replace(format!("{text:#}\n").as_bytes(), 0o644))
            .with_context(|| host.display().to_string())?;
        let name = format!("{}_{base_request}", allocation.uid);
        let container = metadata::path(allocation, driver, base_request);
        Ok((name, Mount { host, container, read_only: true }))
    }

    fn unprepare(&self, uid: &str) -> anyhow::Result<()> {
        let Settings { driver, cdi, .. } = &self.settings;
        ensure!(is_name(uid), "UID {uid:?} of a claim: give letters, digits, hyphens");
        let folder = || format!("CDI specification in {}", cdi.display());
        // Removed first, so that no container starts with a port that is about to be removed.
        Specification::of_claim(driver, uid, Vec::new()).save(cdi).with_context(folder)?;
        claim::unprepare(&self.records, uid).with_context(|| format!("claim {uid}"))?;
        let folder = self.descriptions.join(uid);
        let found = find_own_directory(&self.descriptions);
        if found.with_context(|| folder.display().to_string())?.is_none() {
            return Ok(());
        }
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| folder.display().to_string())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the requests of a claim, each once, without the alternatives that were chosen.
fn requests(allocation: &Allocation) -> Vec<&str> {
    let mut names = Vec::new();
    for name in allocation.devices.iter().map(Allocated::base_request) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the directory of each device's socket in the container: `/run/dray/CLAIM/REQUEST`, or
/// `/run/dray/CLAIM/REQUEST/DEVICE` if the request has several devices.
fn directories(allocation: &Allocation) -> anyhow::Result<Vec<PathBuf>> {
    let claim = Path::new(SOCKETS).join(allocation.name_in_pod());
    let directory = |allocated: &Allocated| {
        let request = allocated.base_request();
        let is_of = |other: &&Allocated| other.base_request() == request;
        let directory = claim.join(request);
        match allocation.devices.iter().filter(is_of).count() {
            1 => directory,
            _ => directory.join(&allocated.device),
        }
    };
    let directories: Vec<_> = allocation.devices.iter().map(directory).collect();
    for directory in &directories {
        let longest = directory.join("memif.sock");
        let length = longest.as_os_str().len();
        ensure!(
            length <= SOCKET_MAX,
            "{}: a path of {length} bytes is too long for a socket, at most {SOCKET_MAX} are \
             allowed; give claim and request shorter names",
            longest.display(),
        );
    }
    Ok(directories)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(claim: &str, requests: &[&str]) -> Allocation {
        let device = |(number, request): (usize, &&str)| Allocated {
            request: (*request).to_owned(),
            pool: "n".to_owned(),
            device: format!("port-{number}"),
            parameters: serde_json::Map::new(),
        };
        Allocation {
            namespace: "n".to_owned(),
            name: claim.to_owned(),
            uid: "u".to_owned(),
            pod_claim: None,
            devices: requests.iter().enumerate().map(device).collect(),
        }
    }

    #[test]
    fn directory_has_names_that_the_pod_knows() {
        let of = |requests: &[&str]| {
            let all = directories(&allocation("net", requests)).unwrap();
            all.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["a", "b/c"]), ["/run/dray/net/a", "/run/dray/net/b"]);
        let two = ["/run/dray/net/a/port-0", "/run/dray/net/b", "/run/dray/net/a/port-2"];
        assert_eq!(of(&["a", "b", "a"]), two);
        assert_eq!(requests(&allocation("net", &["a", "b/c", "a"])), ["a", "b"]);
        let error = directories(&allocation(&"x".repeat(90), &["a"])).unwrap_err().to_string();
        assert!(error.contains("too long for a socket") && error.contains("107"), "{error}");
    }
}

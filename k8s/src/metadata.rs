//! The file that describes a claim's ports in its containers, by the protocol for device metadata
//! (KEP-5304). KubeVirt's binding for vhost-user reads `vhost-user-path` and `mtu` from it.

use std::path::{Path, PathBuf};

use dray_cni::Kind;
use serde_json::{Map, Value, json};

use crate::allocation::{Allocated, Allocation};

/// Directory of the files in containers.
const FOLDER: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// Facts about a port that its container can read.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Name of the port in the switch.
    pub name: String,
    /// Name of the switch.
    pub switch: String,
    /// How the program in the container uses the port.
    pub kind: Kind,
    /// Address that the program must use, unless its parameters say `"spoofCheck": false`.
    pub mac: String,
    /// Maximum size of packets.
    pub mtu: usize,
    /// Path of the socket in the container.
    pub socket: PathBuf,
}

impl Port {
    fn attributes(&self) -> Map<String, Value> {
        let text = |text: &str| json!({"string": text});
        let socket = self.socket.display().to_string();
        let mut all = Map::new();
        for (name, value) in [
            ("kind", text(self.kind.name())),
            ("mac", text(&self.mac)),
            ("mtu", json!({"int": self.mtu})),
            ("port", text(&self.name)),
            ("socket-path", text(&socket)),
            ("switch", text(&self.switch)),
        ] {
            all.insert(name.to_owned(), value);
        }
        if self.kind == Kind::Vhost {
            all.insert("vhost-user-path".to_owned(), text(&socket));
        }
        all
    }
}

/// Returns the content of the file for `request`, with the ports that it was allocated.
pub fn describe(
    allocation: &Allocation,
    driver: &str,
    request: &str,
    ports: &[(&Allocated, &Port)],
) -> Value {
    let devices: Vec<_> = ports
        .iter()
        .map(|(allocated, port)| {
            json!({
                "driver": driver, "pool": allocated.pool, "name": allocated.device,
                "attributes": port.attributes(),
            })
        })
        .collect();
    let mut metadata = json!({
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1alpha1",
        "metadata": {
            "name": allocation.name, "namespace": allocation.namespace, "uid": allocation.uid,
            // The file is written once.
            "generation": 1,
        },
        "requests": [{"name": request, "devices": devices}],
    });
    if let Some(name) = &allocation.pod_claim {
        metadata["podClaimName"] = json!(name);
    }
    metadata
}

/// Returns the path of the file in the container.
pub fn path(allocation: &Allocation, driver: &str, base_request: &str) -> PathBuf {
    let (folder, claim) = match &allocation.pod_claim {
        Some(name) => ("resourceclaimtemplates", name),
        None => ("resourceclaims", &allocation.name),
    };
    let file = format!("{driver}-metadata.json");
    Path::new(FOLDER).join(folder).join(claim).join(base_request).join(file)
}

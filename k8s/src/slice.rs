//! The node's devices at the API server: a ResourceSlice with as many ports as claims can have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::settings::Settings;

/// Largest MTU of a port.
const MTU_MAX: i64 = 9000;

/// Creates or updates the API server's slice to match the settings. The node owns the slice, so
/// Kubernetes removes it with the node.
pub async fn publish(client: &kube::Client, settings: &Settings) -> kube::Result<()> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let wanted = spec(settings);
    let name = format!("{}-{}", settings.node, settings.driver);
    match slices.get_opt(&name).await? {
        None => {
            let node = Api::<Node>::all(client.clone()).get(&settings.node).await?;
            let metadata = ObjectMeta {
                name: Some(name),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: settings.node.clone(),
                    uid: node.metadata.uid.unwrap_or_default(),
                    controller: Some(true),
                    block_owner_deletion: None,
                }]),
                ..ObjectMeta::default()
            };
            let slice = ResourceSlice { metadata, spec: wanted };
            slices.create(&PostParams::default(), &slice).await.map(drop)
        }
        Some(found) => {
            let generation = found.spec.pool.generation;
            let is_same = {
                let mut wanted = wanted.clone();
                wanted.pool.generation = generation;
                wanted == found.spec
            };
            if is_same {
                return Ok(());
            }
            let mut slice = ResourceSlice { metadata: found.metadata, spec: wanted };
            // The scheduler ignores devices of earlier generations.
            slice.spec.pool.generation = generation + 1;
            slices.replace(&name, &PostParams::default(), &slice).await.map(drop)
        }
    }
}

/// Returns the slice of these settings.
pub fn spec(settings: &Settings) -> ResourceSliceSpec {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let attributes = [
        ("mtu", DeviceAttribute { int: Some(MTU_MAX), ..Default::default() }),
        ("switch", DeviceAttribute { string: Some(settings.switch()), ..Default::default() }),
        ("version", DeviceAttribute { version: Some(version), ..Default::default() }),
    ];
    let attributes: BTreeMap<_, _> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let device = |number: u16| Device {
        name: format!("port-{number}"),
        attributes: Some(attributes.clone()),
        ..Default::default()
    };
    ResourceSliceSpec {
        driver: settings.driver.clone(),
        node_name: Some(settings.node.clone()),
        pool: ResourcePool { name: settings.node.clone(), generation: 1, resource_slice_count: 1 },
        devices: Some((0..settings.ports).map(device).collect()),
        ..Default::default()
    }
}

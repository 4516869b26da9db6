//! Messages and services of the kubelet's plugins, in the form of the Protocol Buffers of
//! Kubernetes: `pluginregistration/v1/api.proto` and `dra/v1/api.proto`.

use std::collections::HashMap;

use prost::Message;

/// Services for registration.
pub mod registration {
    #![allow(
        missing_docs,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated"
    )]
    include!(concat!(env!("OUT_DIR"), "/pluginregistration.Registration.rs"));
}

/// Services that prepare claims (Kubernetes 1.34 and later).
pub mod v1 {
    #![allow(
        missing_docs,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated"
    )]
    include!(concat!(env!("OUT_DIR"), "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin.rs"));
}

/// Request for [`PluginInfo`].
#[derive(Clone, PartialEq, Message)]
pub struct InfoRequest {}

/// Description of a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// `DRAPlugin`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Path of the socket at which the driver prepares claims.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Services at that socket.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Outcome of a registration.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    /// True if the kubelet will use the plugin.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Reason of a refusal.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// Reply to [`RegistrationStatus`].
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatusResponse {}

/// Claims to prepare.
#[derive(Clone, PartialEq, Message)]
pub struct NodePrepareResourcesRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Outcome for each claim, by its UID.
#[derive(Clone, PartialEq, Message)]
pub struct NodePrepareResourcesResponse {
    /// The outcomes.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, NodePrepareResourceResponse>,
}

/// Outcome for one claim.
#[derive(Clone, PartialEq, Message)]
pub struct NodePrepareResourceResponse {
    /// Devices of the claim.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// Error, or empty.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device of a claim.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// Requests of the claim that the device satisfies.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// Pool of the device.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// The device in its pool.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// CDI devices that the container runtime injects.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
}

/// Claims that are no longer needed.
#[derive(Clone, PartialEq, Message)]
pub struct NodeUnprepareResourcesRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Outcome for each claim, by its UID.
#[derive(Clone, PartialEq, Message)]
pub struct NodeUnprepareResourcesResponse {
    /// The outcomes.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, NodeUnprepareResourceResponse>,
}

/// Outcome for one claim.
#[derive(Clone, PartialEq, Message)]
pub struct NodeUnprepareResourceResponse {
    /// Error, or empty.
    #[prost(string, tag = "1")]
    pub error: String,
}

/// Identity of a claim.
#[derive(Clone, PartialEq, Message)]
pub struct Claim {
    /// Namespace of the claim.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// UID of the claim.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Name of the claim.
    #[prost(string, tag = "3")]
    pub name: String,
}

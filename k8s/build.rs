//! Generates the gRPC services of the kubelet's plugins, whose messages `src/proto.rs` has: neither
//! protoc nor the files of Kubernetes are needed.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str, input: &str, output: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("crate::proto::{input}"))
            .output_type(format!("crate::proto::{output}"))
            .codec_path("tonic_prost::ProstCodec")
            .build()
    };
    let registration = Service::builder()
        .name("Registration")
        .package("pluginregistration")
        .method(method("get_info", "GetInfo", "InfoRequest", "PluginInfo"))
        .method(method(
            "notify_registration_status",
            "NotifyRegistrationStatus",
            "RegistrationStatus",
            "RegistrationStatusResponse",
        ))
        .build();
    let plugin = Service::builder()
        .name("DRAPlugin")
        .package("k8s.io.kubelet.pkg.apis.dra.v1")
        .method(method(
            "node_prepare_resources",
            "NodePrepareResources",
            "NodePrepareResourcesRequest",
            "NodePrepareResourcesResponse",
        ))
        .method(method(
            "node_unprepare_resources",
            "NodeUnprepareResources",
            "NodeUnprepareResourcesRequest",
            "NodeUnprepareResourcesResponse",
        ))
        .build();
    Builder::new().compile(&[registration, plugin]);
}

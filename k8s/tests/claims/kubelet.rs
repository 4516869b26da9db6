//! A stand-in for the kubelet: it registers the driver and has claims prepared, by the kubelet's
//! own protocols.

use std::path::{Path, PathBuf};

use dray_k8s::proto::registration::registration_client::RegistrationClient;
use dray_k8s::proto::v1::d_r_a_plugin_client::DRAPluginClient;
use dray_k8s::proto::{
    Claim, Device, InfoRequest, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest, PluginInfo, RegistrationStatus,
};
use tonic::transport::{Channel, Endpoint};

pub(crate) struct Kubelet {
    channel: Channel,
}

async fn connect(socket: &Path) -> Channel {
    let uri = format!("unix://{}", socket.display());
    Endpoint::from_shared(uri).unwrap().connect().await.unwrap()
}

impl Kubelet {
    /// Registers the driver whose socket appears in `registry`.
    pub(crate) async fn register(registry: &Path) -> Self {
        let socket = registry.join("dray.dev-reg.sock");
        let mut client = RegistrationClient::new(connect(&socket).await);
        let info: PluginInfo = client.get_info(InfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "dray.dev"));
        assert_eq!(info.supported_versions, ["v1.DRAPlugin"]);
        let channel = connect(&PathBuf::from(info.endpoint)).await;
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        client.notify_registration_status(status).await.unwrap();
        Self { channel }
    }

    /// Sends the driver a refusal.
    pub(crate) async fn refuse(registry: &Path) {
        let socket = registry.join("dray.dev-reg.sock");
        let mut client = RegistrationClient::new(connect(&socket).await);
        let status = RegistrationStatus { plugin_registered: false, error: "no".to_owned() };
        let _ = client.notify_registration_status(status).await;
    }

    pub(crate) async fn prepare(&self, name: &str) -> Result<Vec<Device>, String> {
        let mut client = DRAPluginClient::new(self.channel.clone());
        let request = NodePrepareResourcesRequest { claims: vec![claim(name)] };
        outcome(name, &client.node_prepare_resources(request).await.unwrap().into_inner())
    }

    pub(crate) async fn unprepare(&self, name: &str) -> Result<(), String> {
        self.unprepare_uid(&claim(name).uid).await
    }

    pub(crate) async fn unprepare_uid(&self, uid: &str) -> Result<(), String> {
        let mut client = DRAPluginClient::new(self.channel.clone());
        let claim = Claim { uid: uid.to_owned(), ..claim("any") };
        let request = NodeUnprepareResourcesRequest { claims: vec![claim] };
        let reply = client.node_unprepare_resources(request).await.unwrap().into_inner();
        let error = &reply.claims[uid].error;
        if error.is_empty() { Ok(()) } else { Err(error.clone()) }
    }
}

fn claim(name: &str) -> Claim {
    Claim { namespace: "default".into(), uid: format!("{name}-0000-4000"), name: name.into() }
}

fn outcome(name: &str, reply: &NodePrepareResourcesResponse) -> Result<Vec<Device>, String> {
    let outcome = reply.claims[&claim(name).uid].clone();
    if outcome.error.is_empty() { Ok(outcome.devices) } else { Err(outcome.error) }
}

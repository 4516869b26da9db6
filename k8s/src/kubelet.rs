//! The services that the kubelet calls, at two Unix sockets: one in its directory of plugins, by which it
//! finds the driver, and the driver's own.

use std::collections::HashMap;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use dray_daemon::{Access, BoundSocket, Place, SocketFile};
use rustix::net::SocketType;
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, async_trait};
use tracing::{error, info, warn};

use crate::driver::Driver;
use crate::proto::registration::registration_server::{Registration, RegistrationServer};
use crate::proto::v1::d_r_a_plugin_server as v1;
use crate::proto::v1beta1::d_r_a_plugin_server as v1beta1;
use crate::proto::{
    InfoRequest, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// Services by which claims are prepared, as the kubelet calls them, the newest first.
const VERSIONS: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];

/// Serves the kubelet until it refuses the driver. `registered` is told of each registration.
pub async fn serve(driver: Driver, registered: Arc<Notify>) -> anyhow::Result<()> {
    let settings = driver.settings();
    let (plugin, _file) = listen(&settings.plugin_socket())?;
    let plugin = Server::builder()
        .add_service(v1::DRAPluginServer::new(driver.clone()))
        .add_service(v1beta1::DRAPluginServer::new(driver.clone()))
        .serve_with_incoming(plugin);
    // The kubelet calls the other socket as soon as it sees this one.
    let (registration, _file) = listen(&settings.registration_socket())?;
    let refused = Arc::new(Notify::new());
    let registrar = Registrar { driver: driver.clone(), registered, refused: refused.clone() };
    let registration = Server::builder()
        .add_service(RegistrationServer::new(registrar))
        .serve_with_incoming(registration);
    tokio::select! {
        ended = plugin => ended.context("the driver's socket")?,
        ended = registration => ended.context("the socket for registration")?,
        () = refused.notified() => bail!("the kubelet refused the driver"),
    }
    Ok(())
}

/// Listens at `path`, for root alone; the file of the socket is removed when its guard is dropped.
fn listen(path: &Path) -> anyhow::Result<(UnixListenerStream, Option<SocketFile>)> {
    let what = || format!("socket {}", path.display());
    let access = Access { mode: Some(0o600), ..Access::default() };
    let bound = Place::making(path)
        .and_then(|place| BoundSocket::bind_at(&place, SocketType::STREAM, &access));
    let BoundSocket { socket, file, .. } = bound.with_context(what)?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true).with_context(what)?;
    let listener = tokio::net::UnixListener::from_std(listener).with_context(what)?;
    Ok((UnixListenerStream::new(listener), file))
}

struct Registrar {
    driver: Driver,
    registered: Arc<Notify>,
    refused: Arc<Notify>,
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let settings = self.driver.settings();
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: settings.driver.clone(),
            endpoint: settings.plugin_socket().display().to_string(),
            supported_versions: VERSIONS.map(str::to_owned).into(),
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = status.into_inner();
        if plugin_registered {
            info!("registered with the kubelet");
            self.registered.notify_one();
        } else {
            error!(reason = error, "refused by the kubelet");
            self.refused.notify_one();
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

impl Driver {
    async fn prepare_all(
        &self,
        request: NodePrepareResourcesRequest,
    ) -> NodePrepareResourcesResponse {
        let mut claims = HashMap::new();
        for claim in request.claims {
            let name = format!("{}/{}", claim.namespace, claim.name);
            let outcome = match self.prepare(&claim).await {
                Ok(devices) => {
                    info!(claim = name, devices = devices.len(), "claim prepared");
                    NodePrepareResourceResponse { devices, error: String::new() }
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    warn!(claim = name, reason = error, "claim not prepared");
                    NodePrepareResourceResponse { devices: Vec::new(), error }
                }
            };
            claims.insert(claim.uid, outcome);
        }
        NodePrepareResourcesResponse { claims }
    }

    async fn unprepare_all(
        &self,
        request: NodeUnprepareResourcesRequest,
    ) -> NodeUnprepareResourcesResponse {
        let mut claims = HashMap::new();
        for claim in request.claims {
            let name = format!("{}/{}", claim.namespace, claim.name);
            let error = match self.unprepare(&claim.uid).await {
                Ok(()) => {
                    info!(claim = name, "claim released");
                    String::new()
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    warn!(claim = name, reason = error, "claim not released");
                    error
                }
            };
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        NodeUnprepareResourcesResponse { claims }
    }
}

/// Implements a version of the service; all have the same messages.
macro_rules! serve {
    ($($version:ident),+) => {$(
        #[async_trait]
        impl $version::DRAPlugin for Driver {
            async fn node_prepare_resources(
                &self,
                request: Request<NodePrepareResourcesRequest>,
            ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
                Ok(Response::new(self.prepare_all(request.into_inner()).await))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<NodeUnprepareResourcesRequest>,
            ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
                Ok(Response::new(self.unprepare_all(request.into_inner()).await))
            }
        }
    )+};
}

serve!(v1, v1beta1);

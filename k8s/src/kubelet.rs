//! Services that the kubelet calls, at two Unix sockets: one in the kubelet's registration
//! directory, where it finds the driver, and the driver's own.

use std::collections::HashMap;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use dray_socket::{Access, BoundSocket, Place, SocketFile};
use rustix::net::SocketType;
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, async_trait};
use tracing::{error, info, warn};

use crate::driver::Driver;
use crate::proto::registration::registration_server::{Registration, RegistrationServer};
use crate::proto::v1::d_r_a_plugin_server::{DRAPlugin, DRAPluginServer};
use crate::proto::{
    InfoRequest, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// Service that prepares claims, as the kubelet calls it.
const SERVICE: &str = "v1.DRAPlugin";

/// Serves the kubelet until it refuses the driver. `registered` is notified of each registration.
pub async fn serve(driver: Driver, registered: Arc<Notify>) -> anyhow::Result<()> {
    let settings = driver.settings();
    let (plugin, _file) = listen(&settings.plugin_socket())?;
    let plugin = Server::builder()
        .add_service(DRAPluginServer::new(driver.clone()))
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
            supported_versions: vec![SERVICE.to_owned()],
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

#[async_trait]
impl DRAPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
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
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
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
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

//! The ports of `dray upf` and `dray upf-load`, and their configuration.

use std::path::PathBuf;

use dray_port::{Bound, Port, PortUri};
use dray_sandbox::SandboxError;
use dray_upf::{RestoredState, UpfConfig};

use crate::common::{Failure, usage};

/// The two ports and the configuration of a user plane function, which may be those of a running
/// one.
#[derive(clap::Args)]
pub(super) struct Given {
    /// Port to the gNBs' side.
    #[arg(long, value_name = "URI")]
    pub(super) n3: Option<PortUri>,
    /// Port to the data network's side.
    #[arg(long, value_name = "URI")]
    pub(super) n6: Option<PortUri>,
    /// Addresses, neighbours and sessions of the user plane function.
    #[arg(long, value_name = "FILE.toml")]
    pub(super) config: Option<PathBuf>,
}

/// The two ports and the configuration.
#[derive(clap::Args)]
pub(super) struct Ports {
    /// Port to the gNBs' side.
    #[arg(long, value_name = "URI")]
    pub(super) n3: PortUri,
    /// Port to the data network's side.
    #[arg(long, value_name = "URI")]
    pub(super) n6: PortUri,
    /// Addresses, neighbours and sessions of the user plane function.
    #[arg(long, value_name = "FILE.toml")]
    pub(super) config: PathBuf,
}

impl Ports {
    /// Checks the ports, and reads the configuration.
    pub(super) fn load(&self) -> Result<UpfConfig, Failure> {
        if let Some(common) = self.n3.common_with(&self.n6) {
            return Err(usage!("--n3 and --n6 both use {common}: give two ports"));
        }
        UpfConfig::load(&self.config).map_err(Failure::usage)
    }

    /// Opens N3 and N6, or continues those of `restored`. Interfaces and the rights of sockets,
    /// which require privileges, come before `confine` drops these; ports with their own
    /// threads are opened afterwards.
    pub(super) fn open(
        &self,
        mut restored: Option<&mut RestoredState>,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<[Port; 2], Failure> {
        let uris = [&self.n3, &self.n6];
        let mut bound = [None, None];
        for (number, uri) in uris.into_iter().enumerate() {
            let kept = restored
                .as_mut()
                .map(|restored| restored.keep_port(number as u64, uri))
                .transpose()?;
            if kept != Some(true) {
                bound[number] = Some(uri.bind()?);
            }
        }
        let mut ports = [None, None];
        let mut open = |local: bool| -> Result<(), Failure> {
            for (number, uri) in uris.into_iter().enumerate() {
                if uri.is_local() != local {
                    continue;
                }
                let port = match (bound[number].take(), &mut restored) {
                    (None, Some(restored)) => restored.resume_port(number as u64)?,
                    (bound, _) => bound.map(Bound::open).transpose()?,
                };
                ports[number] = Some(port.map_or_else(|| uri.open(), Ok)?);
            }
            Ok(())
        };
        open(false)?;
        confine()?;
        open(true)?;
        Ok(ports.map(|port| port.expect("every port is opened in one of the passes")))
    }

    /// Returns the failure for an error in the configuration file.
    pub(super) fn wrong(&self, error: dray_upf::ConfigError) -> Failure {
        Failure::usage(error.in_file(&self.config))
    }
}

//! Networks that Docker has created: one file each. Docker keeps its networks over a reboot, and
//! describes them to a driver only once.

use std::fs;
use std::io;
use std::path::PathBuf;

use dray_socket::Place;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::reply::CniError;

/// Settings that a network's containers need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) options: Map<String, Value>,
    /// Gateways of the network, of each family.
    pub(super) gateway: Option<String>,
    pub(super) gateway_v6: Option<String>,
}

/// Directory of the networks' files.
#[derive(Clone, Debug)]
pub(super) struct Networks(PathBuf);

impl Networks {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    pub(super) fn save(&self, id: &str, network: &Saved) -> Result<(), CniError> {
        let path = self.path(id);
        let saved = dray_socket::own_directory(&self.0, 0o700).and_then(|_| {
            let text = serde_json::to_vec_pretty(network).map_err(io::Error::other)?;
            Place::of(&path)?.replace(&text, 0o600)
        });
        saved.map_err(|error| CniError::io(&path.display(), &error))
    }

    /// Reads a network; `None` if it was never saved, or was removed.
    pub(super) fn load(&self, id: &str) -> Result<Option<Saved>, CniError> {
        let path = self.path(id);
        let failed = |error: &dyn ToString| CniError::io(&path.display(), &error.to_string());
        let text = match dray_socket::find_own_directory(&self.0) {
            Ok(None) => return Ok(None),
            found => found.and_then(|_| fs::read(&path)),
        };
        match text {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Removes a network, if there is one.
    pub(super) fn remove(&self, id: &str) -> Result<(), CniError> {
        let path = self.path(id);
        let removed = match dray_socket::find_own_directory(&self.0) {
            Ok(None) => return Ok(()),
            found => found.and_then(|_| Place::of(&path)?.remove()),
        };
        removed.map_err(|error| CniError::io(&path.display(), &error))
    }
}

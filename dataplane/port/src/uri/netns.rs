//! Opening a port in another network namespace.

use std::path::{Path, PathBuf};

use dray_netdev::NetworkNamespace;

use crate::uri::failed::Failed;
use crate::uri::query::{Query, UriError};

/// Takes the key `netns`: the file of the network namespace that has the port.
pub(crate) fn parse(query: &mut Query<'_>) -> Result<Option<PathBuf>, UriError> {
    let allowed = "the path of a network namespace's file, such as /proc/1/ns/net";
    query.take("netns", allowed, |text| text.starts_with('/').then(|| PathBuf::from(text)))
}

/// Runs `open` in the network namespace at `path`; without a path, in the calling thread's.
pub(crate) fn open_in<T: Send>(
    path: Option<&Path>,
    open: impl FnOnce() -> Result<T, Failed> + Send,
) -> Result<T, Failed> {
    let Some(path) = path else { return open() };
    let opened = NetworkNamespace::open(path).and_then(|namespace| namespace.enter(|| Ok(open())));
    opened.map_err(|error| ("network namespace", error))?
}

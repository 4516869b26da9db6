//! Container engines with network interfaces of their own: Podman's netavark and Docker's libnetwork.
//! They assign addresses themselves, so there is no IPAM plugin.

pub(crate) mod docker;
pub(crate) mod netavark;
mod networks;
mod options;

use crate::attachment::Attachment;
use crate::reply::CniError;
use crate::restore::{forget, reap};
use crate::store::Store;

use serde_json::Value;

/// Makes an attachment, instead of an earlier one with the same key.
fn attach(
    store: &Store,
    attachment: &Attachment,
    addresses: Option<&Value>,
) -> Result<(), CniError> {
    reap(store);
    detach(store, &attachment.key())?;
    let key = attachment.key();
    let failed = |error| CniError::io(&key, &error);
    let _lock = store.lock(&key).map_err(failed)?;
    store.save(attachment).map_err(failed)?;
    let attached = attachment.attach(&store.ends(), addresses);
    if attached.is_err() {
        // The error that made it fail is the one to report.
        let _ = forget(store, attachment);
    }
    attached
}

/// Removes the attachment `key`, if there is one.
fn detach(store: &Store, key: &str) -> Result<(), CniError> {
    let failed = |error| CniError::io(&key, &error);
    let _lock = store.lock(key).map_err(failed)?;
    match store.load(key).map_err(failed)? {
        Some(attachment) => forget(store, &attachment),
        None => Ok(()),
    }
}

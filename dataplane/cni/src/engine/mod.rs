//! Container engines with network interfaces of their own: Podman's netavark and Docker's
//! libnetwork. They assign addresses themselves, so there is no IPAM plugin.

pub(crate) mod docker;
pub(crate) mod netavark;
mod networks;
mod options;

use serde_json::Value;

use crate::attachment::Attachment;
use crate::records::Records;
use crate::reply::CniError;
use crate::restore::{forget, reap, replace};

/// Creates an attachment, in place of an earlier one with its key.
fn attach(
    records: &Records,
    attachment: &Attachment,
    addresses: Option<&Value>,
) -> Result<(), CniError> {
    reap(records);
    replace(records, attachment, || attachment.attach(&records.ends(), addresses), || Ok(()))
}

/// Removes the attachment `key`, if there is one.
fn detach(records: &Records, key: &str) -> Result<(), CniError> {
    let _lock = records.lock(key)?;
    records.load(key)?.map_or(Ok(()), |attachment| forget(records, &attachment))
}

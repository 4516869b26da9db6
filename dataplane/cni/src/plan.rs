//! Planning: from a request and a network configuration to the attachment of a container.

use std::io;

use dray_switch::config::Name;

use crate::attachment::{Attachment, end_id, exists, key_of, own_mac};
use crate::call::Call;
use crate::kind::{Kind, UriParts};
use crate::network::Network;
use crate::records::Records;
use crate::reply::{CniError, code};
use crate::{ends, namespace};

/// Returns the attachment that a request describes, and its socket in the container, whose
/// namespace must exist.
pub(crate) fn plan(
    records: &Records,
    call: &Call,
    network: &Network,
) -> Result<(Attachment, Option<String>), CniError> {
    let netns = call.netns.clone().unwrap_or_default();
    let identity = namespace::identity(&netns).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let netns = netns.display();
            let what = format!("CNI_NETNS={netns}: {error}; the container does not exist");
            CniError::new(code::UNKNOWN_CONTAINER, what)
        }
        _ => CniError::io(&format!("CNI_NETNS={}", netns.display()), &error),
    })?;
    if namespace::is_own(&identity) {
        let what = "it is the plugin's own namespace; give that of a container";
        let what = format!("CNI_NETNS={}: {what}", netns.display());
        return Err(CniError::new(code::INVALID_ENVIRONMENT, what));
    }
    namespace::within(&netns, || ()).map_err(|error| {
        let what = format!("CNI_NETNS={}: {error}; give a network namespace", netns.display());
        CniError::new(code::INVALID_ENVIRONMENT, what)
    })?;
    let (mut attachment, socket) = describe(records, call, network)?;
    attachment.identity = identity;
    Ok((attachment, socket))
}

/// Returns the attachment of a container whose namespace may not exist yet, and its socket. A
/// claim's container has no namespace: each kind then has its socket in a directory.
pub(crate) fn describe(
    records: &Records,
    call: &Call,
    network: &Network,
) -> Result<(Attachment, Option<String>), CniError> {
    let Call { container, interface, netns } = call;
    let key = key_of(container, interface);
    let name = match &network.port_name {
        Some(name) => name.clone(),
        None => port_name(container, interface)?,
    };
    let has_directory = network.kind == Kind::Vhost || netns.is_none();
    let directory = has_directory.then(|| Attachment::directory_of(name.as_str()));
    let (tap, ends) = (ends::tap_name(end_id(&key)), records.ends().netns());
    let parts = UriParts {
        interface,
        ends: (&tap, &ends),
        directory: directory.as_ref(),
        queues: network.queues,
        mtu: network.mtu,
    };
    let (uri, socket) = network.kind.uri(&parts);
    let fd = match network.kind {
        // The table of the bypass follows the queues of the TAP interface.
        Kind::Tap => network.queues + 1,
        // The directory of a socket that the program in the container creates.
        Kind::Vhost => 1,
        // The switch itself creates a socket in a directory.
        Kind::Memif | Kind::Virtio => u16::from(!has_directory),
    };
    let port = network.port(name, &uri, fd, network.mac.unwrap_or_else(|| own_mac(&key)))?;
    let attachment = Attachment {
        container: container.clone(),
        interface: interface.clone(),
        network: network.name.clone(),
        kind: network.kind,
        netns: netns.clone().unwrap_or_default(),
        identity: namespace::Identity::default(),
        control: network.control.clone(),
        port,
        directory,
        device_info: network.device_info.clone().filter(|path| !exists(path)),
        is_moved: false,
        moves_mac: network.move_mac,
    };
    Ok((attachment, socket))
}

/// Returns the name of a container's port: of a long identifier, as much as fits.
fn port_name(container: &str, interface: &str) -> Result<Name, CniError> {
    const CONTAINER_MAX: usize = 48;
    let start = &container[..container.len().min(CONTAINER_MAX)];
    format!("{start}.{interface}")
        .parse()
        .map_err(|error| CniError::new(code::INVALID_ENVIRONMENT, format!("{error}")))
}

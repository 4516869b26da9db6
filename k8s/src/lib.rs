//! A driver for Kubernetes' dynamic resource allocation (DRA): the ports that a node's `dray
//! switch` can have are devices, which pods claim. A claim's container gets the directory of its
//! port's socket, by the Container Device Interface (CDI), and a file that describes the port.
//!
//! * `settings`: the command line.
//! * [`slice`]: the node's devices, published at the API server.
//! * [`allocation`]: a claim, with the parameters of its class and its own.
//! * [`driver`]: prepares claims, and reverts that. Its only state is in files below `/run`: it can
//!   be killed and started at any time, and a reboot cleans up.
//! * [`metadata`]: the file that describes the ports of a claim in its containers.
//! * [`kubelet`]: the services that the kubelet calls; [`proto`]: their messages.
#![forbid(unsafe_code)]

pub mod allocation;
pub mod driver;
pub mod kubelet;
pub mod metadata;
pub mod proto;
pub mod settings;
pub mod slice;

/// Returns the message of the API server's error, which `kube` repeats three times in its own text.
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("API server: {}", status.message),
        other => other.to_string(),
    }
}

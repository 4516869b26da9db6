//! Errors of a lab.

use std::io;

use dray_datapath::Cancelled;
use dray_datapath::placement::NoSuchCpu;

/// Reason why a lab could not be built or used.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The user cancelled the operation.
    #[error("{Cancelled}")]
    Cancelled,
    /// The caller may not create namespaces.
    #[error("containers need root (CAP_SYS_ADMIN and CAP_NET_ADMIN): run this with sudo")]
    NotPermitted,
    /// The caller is root, but in a container or a service without these capabilities.
    #[error(
        "containers need {names}, which root lacks here: start the container that this runs in \
         with --privileged, or give the service these capabilities"
    )]
    LacksCapabilities {
        /// Names of the capabilities.
        names: String,
    },
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The operation, and its object.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// The process inside a container ended or sent an unexpected message.
    #[error("container {container}: {what}")]
    Container {
        /// Name of the container.
        container: String,
        /// Description of the failure.
        what: String,
    },
    /// A container runtime cannot be used.
    #[error("runtime {runtime}: {what}")]
    Runtime {
        /// Name of the runtime.
        runtime: &'static str,
        /// Reason why it cannot be used.
        what: String,
    },
    /// The kernel lacks support for a kind of interface.
    #[error("no {what}: {remedy}")]
    NotInKernel {
        /// The kind: the name of a kernel module.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// No network card was named, or no card can be shared among containers.
    #[error("no SR-IOV card: {what}")]
    NoCard {
        /// Description of the problem and of the remedy.
        what: String,
    },
    /// A lab can have only one switch that runs as a program.
    #[error(
        "link {kind}: the lab already has a switch that is a program, and can have only one: \
         create all its links at once"
    )]
    SecondSwitch {
        /// Name of the second link's kind.
        kind: &'static str,
    },
    /// A third-party program to be measured could not be used.
    #[error("{peer}: {what}")]
    Peer {
        /// Name of the program.
        peer: String,
        /// Description of the failure, with the program's last output.
        what: String,
    },
    /// The name belongs to a standing lab.
    #[error(
        "lab {name:?} is already up: take it down with `dray lab down {name}`, or give this one \
         another name with --name"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The given name matches no standing lab, or more than one.
    #[error("{what}")]
    NoSuchLab {
        /// The name given, and the labs that exist.
        what: String,
    },
    /// A standing lab did not carry out a request.
    #[error("lab {lab}: {what}")]
    Standing {
        /// Name of the lab.
        lab: String,
        /// Description of the failure.
        what: String,
    },
    /// A requested CPU is not available.
    #[error(transparent)]
    NoSuchCpu(#[from] NoSuchCpu),
}

impl From<Cancelled> for LabError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl LabError {
    /// For `map_err`: names the operation that failed.
    pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |error| match error.kind() {
            // Root can be refused as well, by other mechanisms; sudo would not help then.
            io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
                Self::NotPermitted
            }
            _ => Self::System { what: what.into(), error },
        }
    }

    /// Makes an error about a peer.
    pub(crate) fn peer(peer: &str, what: impl Into<String>) -> Self {
        Self::Peer { peer: peer.to_owned(), what: what.into() }
    }

    /// Returns true if a privilege was missing.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::NotPermitted | Self::LacksCapabilities { .. })
    }
}

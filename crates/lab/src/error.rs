//! What can go wrong in a lab.

use std::io;

use crate::{LinkKind, Runtime};

/// Why a lab could not be built or used.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The user ended it.
    #[error("interrupted")]
    Cancelled,
    /// The caller may not make namespaces.
    #[error("containers need root (CAP_SYS_ADMIN and CAP_NET_ADMIN): run this with sudo")]
    NotPermitted,
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was being done, and to what.
        what: String,
        /// What the system said.
        error: io::Error,
    },
    /// The process inside a container ended or said something unexpected.
    #[error("container {container}: {what}")]
    Container {
        /// Which one.
        container: String,
        /// What happened.
        what: String,
    },
    /// A container runtime cannot be used.
    #[error("runtime {runtime}: {what}")]
    Runtime {
        /// Which one.
        runtime: Runtime,
        /// Why not.
        what: String,
    },
    /// The kernel has no interfaces of a kind.
    #[error("no {what}: {remedy}")]
    NotInKernel {
        /// The kind: a module's name.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// There is no network card that can be shared among containers, or none was named.
    #[error("no SR-IOV card: {what}")]
    NoCard {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A lab cannot have two programs that are switches.
    #[error(
        "link {kind}: the lab has a switch that is a program already, and can have one: join all \
         that belong to it at once"
    )]
    SecondSwitch {
        /// The second's kind of link.
        kind: LinkKind,
    },
    /// Another program that is measured could not be used.
    #[error("{peer}: {what}")]
    Peer {
        /// Which one.
        peer: String,
        /// What happened, and what the program said last.
        what: String,
    },
    /// What virtual machines need is not installed.
    #[error("virtual machines cannot run here: {what}; scripts/setup-vm.sh installs it")]
    NoVm {
        /// What is missing.
        what: String,
    },
    /// A virtual machine could not be started, or did not do what was expected.
    #[error("virtual machine {vm}: {what}")]
    Vm {
        /// Which one.
        vm: String,
        /// What happened.
        what: String,
    },
    /// A lab that stands already has the name.
    #[error(
        "a lab called {name:?} is up: take it down with `dray lab down {name}`, or give this one \
         another name with --name"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// No lab that stands is meant, or more than one.
    #[error("{what}")]
    NoSuchLab {
        /// What was given, and what there is.
        what: String,
    },
    /// A lab that stands did not do what it was asked to.
    #[error("lab {lab}: {what}")]
    Standing {
        /// Which one.
        lab: String,
        /// What happened.
        what: String,
    },
    /// A CPU was asked for that is not there or not ours.
    #[error("CPU {cpu} is not available; this process may use CPUs {allowed}")]
    NoSuchCpu {
        /// The CPU that was asked for.
        cpu: usize,
        /// Those that may be used, as a list of ranges.
        allowed: String,
    },
}

impl LabError {
    /// For `map_err`: says what was being done.
    pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |error| match error.kind() {
            // Root may be refused as well, by other means, and sudo would not help.
            io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
                Self::NotPermitted
            }
            _ => Self::System { what: what.into(), error },
        }
    }

    /// What is wrong with a peer.
    pub(crate) fn peer(peer: &str, what: impl Into<String>) -> Self {
        Self::Peer { peer: peer.to_owned(), what: what.into() }
    }

    /// Whether what lacked was a privilege.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::NotPermitted)
    }
}

//! BPF programs, written in C, in `bpf/`. They are detached when the process that attached them
//! ends, unless another one has their link; but the bypass stays.
//!
//! XDP programs see each frame of an interface before the kernel's network stack does. A socket map
//! takes TCP between sockets of one host past it. The bypass forwards frames between containers.

use std::sync::{LazyLock, Mutex, PoisonError};

use aya::{Ebpf, EbpfError, EbpfLoader};

mod attach;
mod bypass;
mod calls;
mod learner;
mod redirect;
mod sockets;
mod sockmap;

pub use attach::{Mode, XdpError};
pub use bypass::{Bypass, BypassEntry, BypassIds, Bypassed, CONTAINERS_MAX};
pub use redirect::{Pass, Redirect};
pub use sockets::{PORTS_MAX, SocketsProgram};
pub use sockmap::{Shortcut, SockmapError};

/// Loads the programs of an object.
///
/// There is one loader, because aya 0.14 reads the descriptions of all types of the kernel for
/// each, which these programs do not need (0.15 leaves it out, and needs Rust 1.98).
fn load(object: &[u8]) -> Result<Ebpf, EbpfError> {
    static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        Mutex::new(loader)
    });
    LOADER.lock().unwrap_or_else(PoisonError::into_inner).load(object)
}

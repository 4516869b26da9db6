//! BPF programs, written in C, in `bpf/`. They are detached when the process that attached them
//! ends, unless another one has their link; but the bypass stays.
//!
//! XDP programs see each frame of an interface before the kernel's network stack does. A socket map
//! takes TCP between sockets of one host past it. The bypass forwards frames between containers.

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

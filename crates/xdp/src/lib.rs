//! XDP programs: they see each frame of an interface before the kernel's network stack does. They
//! are written in C, in `bpf/`, and are detached when the process that attached them ends.

mod attach;
mod learner;
mod redirect;
mod sockets;

pub use attach::{Mode, XdpError};
pub use redirect::{Pass, Redirect};
pub use sockets::{PORTS_MAX, SocketsProgram};

//! What a program in a container is allowed beyond what anybody is.

/// A capability (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Load programs into the kernel's virtual machine: an XDP program.
    Bpf,
    /// Keep any amount of memory from being swapped: the frames of an AF_XDP socket.
    IpcLock,
    /// Use the devices of TAP and macvtap interfaces, and make the latter's nodes: they have numbers
    /// when the interfaces are there.
    Mknod,
    /// Attach XDP programs, and have socket buffers beyond `net.core.rmem_max`.
    NetAdmin,
    /// Open packet and AF_XDP sockets.
    NetRaw,
}

impl Capability {
    /// Its name, as in `CAP_NET_RAW`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "CAP_BPF",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::Mknod => "CAP_MKNOD",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
        }
    }
}

/// The capabilities that a container is given, and no others. The embedded runtime gives all that the
/// lab has.
pub type Privileges = &'static [Capability];

//! Privileges of a program in a container, in addition to those of any process.

/// A capability (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Load programs into the kernel's virtual machine, such as an XDP program.
    Bpf,
    /// Lock any amount of memory, such as the frames of an AF_XDP socket.
    IpcLock,
    /// Use the devices of TAP and macvtap interfaces, and create the nodes of the latter, whose
    /// numbers are known only once the interfaces exist.
    Mknod,
    /// Attach XDP programs, and set socket buffers larger than `net.core.rmem_max`.
    NetAdmin,
    /// Open packet and AF_XDP sockets.
    NetRaw,
}

impl Capability {
    /// Name of the capability, as in `CAP_NET_RAW`.
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

/// The only capabilities that a container is given. The embedded runtime gives all capabilities of
/// the lab instead.
pub type Privileges = &'static [Capability];

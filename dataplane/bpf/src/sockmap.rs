//! A BPF socket map: data sent on a TCP socket goes straight into the queue of the socket at the
//! other end, if that is on this host too. Programs need not know.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use aya::Ebpf;
use aya::maps::{MapData, SockHash};
use aya::programs::{CgroupAttachMode, ProgramError, SkMsg, SockOps};
use dray_netdev::privilege::{BPF, NET_ADMIN, hint};

/// The programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
#[error("socket map: {what}: {error}{hint}")]
pub struct SockmapError {
    what: &'static str,
    error: io::Error,
    hint: String,
}

impl SockmapError {
    /// Creates an error from the system's error number at the root of `error`.
    fn new(what: &'static str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut source = Some(error);
        let number = std::iter::from_fn(|| {
            let this = source?;
            source = this.source();
            Some(this)
        })
        .find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
        let error = number
            .map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error);
        // The numbers of EPERM and EINVAL, which are the same on every Linux machine.
        let hint = match number {
            Some(1) => hint(&[BPF, NET_ADMIN]),
            Some(22) => "; this needs a kernel with CONFIG_BPF_STREAM_PARSER and CONFIG_CGROUP_BPF"
                .to_owned(),
            _ => String::new(),
        };
        Self { what, error, hint }
    }
}

/// Shortcut for the TCP connections of a control group, active as long as this value lives.
pub struct Shortcut {
    /// Holds programs, map and attachments.
    _ebpf: Ebpf,
    _ends: SockHash<MapData, End>,
}

/// One end of a connection: `struct end` of the BPF program.
type End = [u8; 16];

impl Shortcut {
    /// Shortcuts every IPv4 TCP connection that is made from now on and has both ends in `group`
    /// (of control groups version 2) or below.
    pub fn attach(group: BorrowedFd<'_>) -> Result<Self, SockmapError> {
        static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/shortcut.o"));
        let mut ebpf = crate::load(OBJECT).map_err(|error| SockmapError::new("loading", &error))?;
        let ends = ebpf.take_map("ends").expect("the object has it");
        let ends =
            SockHash::<_, End>::try_from(ends).map_err(|error| SockmapError::new("map", &error))?;
        let fail = |what| move |error: ProgramError| SockmapError::new(what, &error);
        let send = ebpf.program_mut("dray_send").expect("the object has it");
        let send: &mut SkMsg = send.try_into().expect("of this type");
        send.load().map_err(fail("loading"))?;
        send.attach(ends.fd()).map_err(fail("attaching to the map"))?;
        let established = ebpf.program_mut("dray_established").expect("the object has it");
        let established: &mut SockOps = established.try_into().expect("of this type");
        established.load().map_err(fail("loading"))?;
        // Links to a control group coexist without a flag for it.
        established
            .attach(group, CgroupAttachMode::Single)
            .map_err(fail("attaching to the control group"))?;
        Ok(Self { _ebpf: ebpf, _ends: ends })
    }
}

//! Attaching a program to an interface, for as long as the attachment is held.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::{ProgramError, Xdp};
use dray_netdev::privilege::{BPF, NET_ADMIN, hint};

use crate::calls;

/// Place on a frame's path where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made a packet buffer of the frame.
    Native,
    /// After the driver, on a packet buffer: works with any interface.
    Generic,
}

impl Mode {
    /// Returns the name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An XDP program could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The kernel did not accept the program.
    #[error("loading an XDP program: {0}{hint}", hint = load_hint(.0))]
    Load(io::Error),
    /// Another program is already attached.
    #[error(
        "another XDP program is attached: `ip -details link` and `bpftool net` show its id, and \
         `ip link set dev INTERFACE xdp off` removes it unless a process holds it"
    )]
    Occupied,
    /// The driver cannot run XDP programs.
    #[error("the driver cannot run XDP programs ({0}); use xdp=generic or xdp=auto")]
    NotNative(io::Error),
    /// The link of another process cannot be continued.
    #[error("link of an XDP program: {0}")]
    Link(io::Error),
    /// Any other error.
    #[error("attaching an XDP program: {0}")]
    Attach(io::Error),
    /// An entry of a map could not be set.
    #[error("setting a map entry of an XDP program: {0}")]
    Map(io::Error),
}

impl From<XdpError> for io::Error {
    /// Returns the system's error, of a program of another type.
    fn from(error: XdpError) -> Self {
        match error {
            XdpError::Load(error) | XdpError::Attach(error) | XdpError::Map(error) => error,
            error => Self::other(error),
        }
    }
}

fn load_hint(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => hint(&[BPF, NET_ADMIN]),
        Some(libc::EINVAL) => "; XDP programs for multi-buffer frames need Linux 5.18".to_owned(),
        _ => String::new(),
    }
}

/// An attached program; it is detached when this is dropped, or when the process ends in any way,
/// unless another process has its link.
#[derive(Debug)]
pub(crate) struct Attached {
    mode: Mode,
    link: OwnedFd,
}

impl Attached {
    /// Attaches a loaded program to interfaces of this network namespace, in the first of `modes`
    /// that all of their drivers support: a frame that one interface redirects natively is lost at
    /// an interface that cannot take it that way. On failure the program is attached to none.
    pub(crate) fn to_all(
        program: &mut Xdp,
        interfaces: &[u32],
        modes: &[Mode],
    ) -> Result<Vec<Self>, XdpError> {
        let (last, others) = modes.split_last().expect("some mode is asked for");
        let mut try_all =
            |mode| interfaces.iter().map(|index| Self::try_mode(program, *index, mode)).collect();
        for &mode in others {
            match try_all(mode) {
                Err(XdpError::NotNative(_)) => {}
                result => return result,
            }
        }
        try_all(*last)
    }

    fn try_mode(program: &mut Xdp, interface: u32, mode: Mode) -> Result<Self, XdpError> {
        // `XDP_FLAGS_DRV_MODE` and `XDP_FLAGS_SKB_MODE` of linux/if_link.h.
        let flags = match mode {
            Mode::Native => 1 << 2,
            Mode::Generic => 1 << 1,
        };
        let attach_error = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => XdpError::Occupied,
            // Drivers refuse with various errors: ERANGE for an MTU, EINVAL for a setting.
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) if mode == Mode::Native => {
                XdpError::NotNative(error)
            }
            _ => XdpError::Attach(error),
        };
        let program = program.fd().map_err(|error| XdpError::Attach(system_error(error)))?;
        let link = calls::create_link(program.as_fd(), interface, flags);
        Ok(Self { mode, link: link.map_err(attach_error)? })
    }

    /// Continues with the link of another process to this interface.
    pub(crate) fn resume(interface: u32, mode: Mode, link: OwnedFd) -> Result<Self, XdpError> {
        match calls::interface_of(link.as_fd()) {
            Ok(of) if of == interface => Ok(Self { mode, link }),
            Ok(of) => {
                let what = format!("it is attached to interface {of}, not {interface}");
                Err(XdpError::Link(io::Error::other(what)))
            }
            Err(error) => Err(XdpError::Link(error)),
        }
    }

    pub(crate) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Returns the mode in which the program runs.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }
}

/// Returns the kernel's error without its wrappers.
pub(crate) fn system_error(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(error) => error.io_error,
        ProgramError::LoadError { io_error, .. } => io_error,
        ProgramError::XdpError(error) => errno_of(&error),
        error => io::Error::other(error),
    }
}

pub(crate) fn load_error(error: EbpfError) -> XdpError {
    XdpError::Load(match error {
        EbpfError::MapError(error) => map_system_error(error),
        EbpfError::ProgramError(error) => system_error(error),
        error => errno_of(&error),
    })
}

pub(crate) fn map_error(error: MapError) -> XdpError {
    XdpError::Map(map_system_error(error))
}

fn map_system_error(error: MapError) -> io::Error {
    match error {
        MapError::CreateError { io_error, .. } => io_error,
        MapError::SyscallError(error) => error.io_error,
        error => io::Error::other(error),
    }
}

/// Returns the system's error number at the root of `error`, if there is one.
fn errno_of(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let mut source = Some(error);
    while let Some(error) = source {
        let number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if let Some(number) = number {
            return io::Error::from_raw_os_error(number);
        }
        source = error.source();
    }
    io::Error::other(error.to_string())
}

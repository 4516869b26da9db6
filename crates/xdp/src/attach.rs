//! Attaching a program to an interface, for as long as somebody holds on to it.

use std::fmt;
use std::io;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};

/// Where on a frame's way an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made a packet buffer of the frame.
    Native,
    /// Behind the driver, on a packet buffer: any interface can do that.
    Generic,
}

impl Mode {
    /// The word for it.
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
    /// The kernel did not take the program.
    #[error("loading an XDP program: {0}{hint}", hint = load_hint(.0))]
    Load(io::Error),
    /// Some other program is there already.
    #[error(
        "another XDP program is attached: `ip -details link` shows its number, `bpftool net` whose \
         it is, and `ip link set dev INTERFACE xdp off` removes it unless a process holds it"
    )]
    Occupied,
    /// The driver cannot run XDP programs.
    #[error(
        "the driver cannot run XDP programs ({0}); xdp=generic works everywhere, and xdp=auto \
         chooses that by itself"
    )]
    NotNative(io::Error),
    /// The kernel is from before Linux 5.9.
    #[error("attaching an XDP program that is detached when its process ends takes Linux 5.9")]
    OldKernel,
    /// Something else was wrong.
    #[error("attaching an XDP program: {0}")]
    Attach(io::Error),
    /// An entry of a map could not be set.
    #[error("telling an XDP program: {0}")]
    Map(io::Error),
}

fn load_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => "; this needs CAP_BPF and CAP_NET_ADMIN, so run it as root",
        Some(libc::EINVAL) => "; programs for frames in several parts take Linux 5.18",
        _ => "",
    }
}

/// An attached program; it is detached when this is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(crate) struct Attached {
    mode: Mode,
    _link: FdLink,
}

impl Attached {
    /// Attaches a loaded program to interfaces of this network namespace, in the first of `modes` that
    /// all of their drivers can: a frame that one passes on natively is lost at one that cannot take it
    /// so. Where it fails, it is attached to none.
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
        let flags = match mode {
            Mode::Native => XdpMode::Driver,
            Mode::Generic => XdpMode::Skb,
        };
        let attach_error = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => XdpError::Occupied,
            // Drivers have many ways to say no: ERANGE for an MTU, EINVAL for a setting.
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) if mode == Mode::Native => {
                XdpError::NotNative(error)
            }
            _ => XdpError::Attach(error),
        };
        let id = program
            .attach_to_if_index(interface, flags)
            .map_err(|error| attach_error(system_error(error)))?;
        let link = program.take_link(id).expect("it has just been made");
        // Elsewhere the program would outlive us; the link detaches it.
        let link = FdLink::try_from(link).map_err(|_| XdpError::OldKernel)?;
        Ok(Self { mode, _link: link })
    }

    /// Where the program runs.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }
}

/// What the kernel said, out of all the wrapping.
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

/// The system's error number at the root of `error`, where there is one.
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

//! Character devices of TAP and macvtap interfaces.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::session::passed::{describe, set_nonblocking};
use crate::uri::failed::Failed;
use crate::uri::failed::refused as refused_descriptor;
use dray_netdev::{TapFormat, TapOffloads, attach_tap, attached_tap, set_tap_offloads};
use dray_wire::offload::Offloads;
use rustix::fs::{CWD, Dev, FileType, Mode, makedev, mknodat};

/// An open device.
pub(super) struct Device {
    pub(super) file: File,
    /// True if it belongs to a macvtap interface.
    pub(super) is_macvtap: bool,
    /// Offloads that the kernel leaves to the reader, and takes from a writer; `None` if frames
    /// have no virtio-net header.
    pub(super) offloads: Option<Offloads>,
}

impl Device {
    /// Opens the device of the interface `name`: that of a macvtap interface, else that of a TAP
    /// interface, which is created if it does not exist. With several queues, each device is one.
    /// With `offloads`, as much as the kernel supports is left to the reader.
    pub(super) fn open(
        name: &str,
        is_multi_queue: bool,
        offloads: bool,
    ) -> Result<Self, (&'static str, io::Error)> {
        let number = macvtap_number(name).map_err(|error| ("macvtap device", error))?;
        let (file, is_macvtap) = match number {
            Some(number) => (open_node(number).map_err(|error| ("macvtap device", error))?, true),
            None => {
                let file = open("/dev/net/tun".into());
                (file.map_err(|error| ("/dev/net/tun", error))?, false)
            }
        };
        let format = TapFormat { has_header: offloads, is_multi_queue };
        attach_tap(file.as_fd(), name, format).map_err(|error| match error.raw_os_error() {
            // The kernel's error is about a file descriptor in a bad state.
            Some(libc::EINVAL) if !is_macvtap => ("TAP interface", refused(name, is_multi_queue)),
            _ => ("TAP interface", error),
        })?;
        let offloads = if offloads { Some(negotiate(&file)?) } else { None };
        Ok(Self { file, is_macvtap, offloads })
    }
}

impl Device {
    /// Takes a device that another program has opened and attached to the interface `name`, as one
    /// of several queues or as the only one.
    pub(super) fn of(
        descriptor: OwnedFd,
        name: &str,
        is_multi_queue: bool,
        offloads: bool,
    ) -> Result<Self, Failed> {
        let expected = match is_multi_queue {
            true => format!("give a device of TAP interface {name} that is one of several queues"),
            false => format!("give a device of TAP interface {name} with one queue"),
        };
        let wrong = |what: String| refused_descriptor(format!("it is {what}; {expected}"));
        let (attached, format) = match attached_tap(descriptor.as_fd()) {
            Ok(attached) => attached,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(wrong(error.to_string()));
            }
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => {
                return Err(wrong("a TAP device without an interface".to_owned()));
            }
            Err(_) => return Err(wrong(describe(&descriptor))),
        };
        if attached != name || format.is_multi_queue != is_multi_queue {
            let queues = if format.is_multi_queue { "one of several queues" } else { "one queue" };
            return Err(wrong(format!("a device of TAP interface {attached} with {queues}")));
        }
        set_nonblocking(&descriptor, true)?;
        let file = File::from(descriptor);
        // A reader of frames with a header takes all that the kernel leaves to it, or nothing.
        let offloads = match (format.has_header, offloads) {
            (false, _) => None,
            (true, true) => Some(negotiate(&file)?),
            (true, false) => {
                set_tap_offloads(file.as_fd(), TapOffloads::Nothing)
                    .map_err(|error| ("TUNSETOFFLOAD", error))?;
                Some(Offloads::NONE)
            }
        };
        Ok(Self { file, is_macvtap: false, offloads })
    }
}

/// Returns the error for an interface that cannot be attached to with this number of queues.
fn refused(name: &str, is_multi_queue: bool) -> io::Error {
    let what = match is_multi_queue {
        true => "is no TAP interface with several queues (`ip tuntap add mode tap multi_queue`)",
        false => "is no TAP interface with one queue",
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name} {what}"))
}

/// Makes the kernel leave segmentation and checksums to the reader, as far as it can.
fn negotiate(file: &File) -> Result<Offloads, (&'static str, io::Error)> {
    let sets = [(TapOffloads::TcpAndUdp, Offloads::ALL), (TapOffloads::Tcp, Offloads::TCP)];
    for (set, offloads) in sets {
        if set_tap_offloads(file.as_fd(), set).is_ok() {
            return Ok(offloads);
        }
    }
    set_tap_offloads(file.as_fd(), TapOffloads::Nothing)
        .map_err(|error| ("TUNSETOFFLOAD", error))?;
    Ok(Offloads::NONE)
}

fn open(path: PathBuf) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Returns the device number of a macvtap interface from `/sys` of its network namespace; `None`
/// for any other interface.
fn macvtap_number(interface: &str) -> io::Result<Option<Dev>> {
    let folder = PathBuf::from(format!("/sys/class/net/{interface}/macvtap"));
    let Some(device) = fs::read_dir(folder).ok().and_then(|mut entries| entries.next()) else {
        return Ok(None);
    };
    let text = fs::read_to_string(device?.path().join("dev"))?;
    let number = text
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some(makedev(major.parse().ok()?, minor.parse().ok()?)));
    let what =
        || io::Error::new(io::ErrorKind::InvalidData, format!("invalid device number {text:?}"));
    number.map(Some).ok_or_else(what)
}

/// Opens the device with this number. The kernel names devices after interface indices, which are
/// not unique among containers, so a node with a name of our own is created for a moment.
fn open_node(number: Dev) -> io::Result<File> {
    let path = PathBuf::from(format!("/dev/dray-macvtap-{number:x}"));
    match mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, number) {
        // A process that was killed before it removed the node left the same one.
        Err(rustix::io::Errno::EXIST) if is_device(&path, number)? => {}
        result => result?,
    }
    let file = open(path.clone());
    let removed = fs::remove_file(&path);
    let file = file?;
    removed?;
    Ok(file)
}

fn is_device(path: &PathBuf, number: Dev) -> io::Result<bool> {
    let meta = fs::symlink_metadata(path)?;
    Ok(meta.file_type().is_char_device() && meta.rdev() == number)
}

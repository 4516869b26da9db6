//! Attachments: a port of the switch, and its interface, socket or directory in the container.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use dray_netdev::{Interface, TapFormat, create_tap};
use dray_port::PortUri;
use dray_switch::PortConfig;
use dray_switch::client::{Client, ClientError};
use dray_wire::MacAddr;
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::addresses;
use crate::kind::Kind;
use crate::namespace::{self, Identity};
use crate::reply::{CniError, code};
use crate::store::{Store, remove_file};

/// The record of an attachment. It is written before any part of the attachment is made, so each part
/// may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Identifier of the container.
    pub container: String,
    /// Name of the interface in the container.
    pub interface: String,
    /// Name of the network.
    pub network: String,
    /// How the program in the container uses the port.
    pub kind: Kind,
    /// File of the container's network namespace; empty for a claim, which is prepared before there is
    /// one.
    pub netns: PathBuf,
    /// Device and inode of that namespace.
    pub(crate) identity: Identity,
    /// Control socket of the switch.
    pub control: PathBuf,
    /// The port. No other port of the switch has its address.
    pub port: PortConfig,
    /// Directory of the socket, if that is a file.
    pub(crate) directory: Option<PathBuf>,
    /// Device information file that the plugin has written.
    pub(crate) device_info: Option<PathBuf>,
    /// True if a container engine moves the TAP interface into the container, under a name of its
    /// choice. Until then it is in the namespace of engine, plugin and switch, called `interface`;
    /// `identity` has no meaning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_moved: bool,
}

/// Default directory of the directories for sockets of containers. Only root can enter it, so that
/// a container reaches only the one that is mounted into it.
const DIRECTORIES: &str = "/run/dray/vhost";

impl Attachment {
    pub(crate) fn key(&self) -> String {
        Store::key(&self.container, &self.interface)
    }

    /// Returns the directory for the socket of the program behind `port`.
    pub(crate) fn directory_of(port: &str) -> PathBuf {
        dray_daemon::default_control(DIRECTORIES).join(port)
    }

    /// Returns the address of the container's interface.
    pub(crate) fn mac(&self) -> Option<MacAddr> {
        self.port.macs.first().copied()
    }

    /// Returns true if the container's network namespace no longer exists.
    pub(crate) fn is_gone(&self) -> bool {
        match self.is_moved {
            true => !self.netns.exists(),
            false => !self.is_claim() && namespace::is_gone(&self.netns, self.identity),
        }
    }

    /// Returns true if it is a claim's, of a container that need not exist.
    pub(crate) fn is_claim(&self) -> bool {
        self.netns.as_os_str().is_empty()
    }

    /// Returns true if the switch creates the socket in the directory.
    pub(crate) fn is_read_only(&self) -> bool {
        self.kind != Kind::Vhost
    }

    fn client(&self) -> Client {
        Client::new(&self.control)
    }

    /// Makes everything that the record describes; the interface gets the addresses and routes of an
    /// IPAM plugin's result.
    pub(crate) fn attach(&self, addresses: Option<&Value>) -> Result<(), CniError> {
        self.create()?;
        self.add_port(&self.open()?)?;
        let (Kind::Tap, Some(addresses)) = (self.kind, addresses) else { return Ok(()) };
        namespace::within(&self.netns, || addresses::configure(&self.interface, addresses))
            .map_err(|error| CniError::io(&self.netns.display(), &error))?
    }

    /// Creates what the port uses: the TAP interface in the container, or the directory.
    pub(crate) fn create(&self) -> Result<(), CniError> {
        if self.is_moved {
            return self.create_tap();
        }
        if self.kind == Kind::Tap {
            let made = namespace::within(&self.netns, || self.create_tap());
            return made.map_err(|error| CniError::io(&self.netns.display(), &error))?;
        }
        match &self.directory {
            None => Ok(()),
            Some(directory) => create_directory(directory, self.is_read_only()).map_err(|error| {
                CniError::io(&format!("directory {}", directory.display()), &error)
            }),
        }
    }

    /// Creates the interface in the thread's namespace, under a name that nothing else has, and
    /// renames it once its address says that it is ours.
    fn create_tap(&self) -> Result<(), CniError> {
        let name = &self.interface;
        let failed = |error| CniError::io(&format!("TAP interface {name}"), &error);
        let format = TapFormat { has_header: true, is_multi_queue: self.port.fd > 1 };
        let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
        let device = device.map_err(|error| {
            let what = "/dev/net/tun (the kernel needs CONFIG_TUN)";
            CniError::io(&what, &error)
        })?;
        let unfinished = self.unfinished();
        create_tap(device.as_fd(), &unfinished, format).map_err(failed)?;
        let interface = Interface::find(&unfinished).map_err(failed)?;
        if let Some(MacAddr(mac)) = self.mac() {
            interface.set_mac(mac).map_err(failed)?;
        }
        interface.rename(name).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == Errno::EXIST.raw_os_error() => {
                let what = format!(
                    "CNI_IFNAME={name}: the container already has this interface; give another name"
                );
                CniError::new(code::INVALID_ENVIRONMENT, what)
            }
            _ => failed(error),
        })
    }

    fn unfinished(&self) -> String {
        format!("dray{:08x}", hash(&self.key()) as u32)
    }

    /// Returns the name of a moved interface in the container; `None` before it is there.
    fn moved_name(&self) -> Option<String> {
        let mac = self.mac()?;
        namespace::within(&self.netns, || addresses::interface_with(mac)).ok()?.ok()?
    }

    /// Updates the port if its interface has been moved into the container since. Returns true if it
    /// has.
    pub(crate) fn follow(&mut self) -> bool {
        let name = if self.is_moved { self.moved_name() } else { None };
        let PortUri::Tap(uri) = &mut self.port.uri else { return false };
        match name {
            Some(name) if uri.netns.is_none() || uri.interface != name => {
                uri.interface = name;
                uri.netns = Some(self.netns.clone());
                true
            }
            _ => false,
        }
    }

    /// Opens what the switch needs, in the container's namespace.
    pub(crate) fn open(&self) -> Result<Vec<OwnedFd>, CniError> {
        if self.port.fd == 0 {
            return Ok(Vec::new());
        }
        let prepare = || {
            let opened = self.port.uri.prepare();
            opened.map_err(|error| CniError::new(code::IO_FAILURE, error.to_string()))
        };
        if let (true, PortUri::Tap(uri)) = (self.is_moved, &self.port.uri) {
            // It would be created again, and no engine would move that one.
            let find = || Interface::find(&uri.interface).map(drop);
            let found = match &uri.netns {
                None => find(),
                Some(netns) => namespace::within(netns, find).and_then(|found| found),
            };
            found.map_err(|error| CniError::io(&format!("interface {}", uri.interface), &error))?;
            return prepare();
        }
        if self.is_gone() {
            let what = "the container's network namespace is gone, or not visible here";
            return Err(CniError::io(&self.netns.display(), &what));
        }
        let open = || {
            if self.kind == Kind::Tap {
                // It would be created again, without addresses.
                Interface::find(&self.interface).map_err(|error| {
                    CniError::io(&format!("interface {} in the container", self.interface), &error)
                })?;
            }
            prepare()
        };
        if self.is_claim() {
            return open();
        }
        namespace::within(&self.netns, open)
            .map_err(|error| CniError::io(&self.netns.display(), &error))?
    }

    /// Passes the port to the switch.
    pub(crate) fn add_port(&self, descriptors: &[OwnedFd]) -> Result<(), CniError> {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let added = self.client().add_port_with(&self.port, &descriptors);
        added.map(drop).map_err(|error| switch_error(&error))
    }

    /// Returns true if the switch has the port.
    pub(crate) fn has_port(&self) -> Result<bool, ClientError> {
        match self.client().port(&self.port.name) {
            // Another port may have the name.
            Ok(status) => Ok(status.config == self.port),
            Err(ClientError::Refused { status: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes everything that exists of the attachment but its record. A switch that does not run
    /// has no port to remove.
    pub(crate) fn release(&self) -> Result<(), CniError> {
        let removed = self.has_port().and_then(|has_port| match has_port {
            true => self.client().remove_port(&self.port.name),
            false => Ok(()),
        });
        match removed {
            Ok(())
            | Err(ClientError::NotRunning { .. } | ClientError::Refused { status: 404, .. }) => {}
            Err(error) => return Err(switch_error(&error)),
        }
        if self.is_moved {
            // The engine moves it back from a container that ends in good order. A namespace that is
            // no more has taken it along. The container may have changed its address.
            let name = self.moved_name();
            let within = || name.map_or(Ok(()), |name| addresses::remove(&name));
            let removed = namespace::within(&self.netns, within).unwrap_or(Ok(()));
            removed
                .and_then(|()| addresses::remove(&self.unfinished()))
                .and_then(|()| addresses::remove(&self.interface))
                .map_err(|error| CniError::io(&format!("interface {}", self.interface), &error))?;
        } else if self.kind == Kind::Tap && !self.is_gone() {
            match namespace::within(&self.netns, || self.remove_tap()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.and_then(|removed| removed).map_err(|error| {
                    CniError::io(&format!("interface {}", self.interface), &error)
                })?,
            }
        }
        if let Some(directory) = &self.directory {
            remove_directory(directory)
                .map_err(|error| CniError::io(&directory.display(), &error))?;
        }
        if let Some(path) = &self.device_info {
            remove_file(path).map_err(|error| CniError::io(&path.display(), &error))?;
        }
        Ok(())
    }

    fn remove_tap(&self) -> io::Result<()> {
        addresses::remove(&self.unfinished())?;
        // An interface of this name with another address is not ours.
        match Interface::find(&self.interface).and_then(|interface| interface.mac()) {
            Ok(mac) if Some(MacAddr(mac)) == self.mac() => addresses::remove(&self.interface),
            _ => Ok(()),
        }
    }
}

/// Returns the address of a container that has none in its configuration, the same each time.
pub(crate) fn own_mac(key: &str) -> MacAddr {
    MacAddr::local(hash(key))
}

fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Returns the error for a request that the switch did not carry out.
pub(crate) fn switch_error(error: &ClientError) -> CniError {
    let code = match error {
        ClientError::Refused { status: 400, .. } => code::INVALID_CONFIG,
        ClientError::Refused { status: 503, .. }
        | ClientError::NotRunning { .. }
        | ClientError::Broken { .. } => code::TRY_AGAIN_LATER,
        ClientError::Refused { .. } => code::REFUSED,
    };
    CniError::new(code, error.to_string())
}

/// Creates a directory, unless it exists, in one that only root can enter. If any user may write to it,
/// it is a file system of its own, so what a container puts there is bounded, and disappears as a whole.
fn create_directory(directory: &Path, is_read_only: bool) -> io::Result<()> {
    let parent = directory.parent().unwrap_or(directory);
    let above = parent.parent().unwrap_or(parent);
    DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    for (directory, mode) in [(parent, 0o700), (directory, 0o755)] {
        match DirBuilder::new().mode(mode).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let is_mounted = fs::symlink_metadata(directory)?.dev() != fs::symlink_metadata(parent)?.dev();
    if is_read_only || is_mounted {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = c"mode=0777,size=64k,nr_inodes=64";
    mount("dray", directory, "tmpfs", flags, options)?;
    // The switch is root without capabilities, so it may connect only to sockets that it may write to.
    // libvirt's QEMU creates its socket with umask 0002, which leaves this right to the group alone.
    match setxattr(directory, c"system.posix_acl_default", &default_acl(), XattrFlags::empty()) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns an access control list (acl(5), in the form of the kernel's posix_acl_xattr.h) that lets root
/// use a new file as the file's group may.
fn default_acl() -> Vec<u8> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    // Tags: the owner, a user, the group, the mask of both, all others.
    let entries: [(u16, u32); 5] = [(1, NOBODY), (2, 0), (4, NOBODY), (16, NOBODY), (32, NOBODY)];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(0o7u16.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

fn remove_directory(directory: &Path) -> io::Result<()> {
    match unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // It is not mounted, or does not exist.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    // A switch that does not run leaves its socket.
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if `path` can be opened: a device information file of another program.
pub(crate) fn exists(path: &Path) -> bool {
    File::open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_address_is_stable_and_of_a_station() {
        let mac = own_mac("a:eth0");
        assert_eq!(mac, own_mac("a:eth0"));
        assert_ne!(mac, own_mac("a:eth1"));
        assert!(mac.is_station());
    }
}

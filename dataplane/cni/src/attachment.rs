//! Attachments: a port of the switch, and its interface, socket or directory in the container.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use dray_netdev::Interface;
use dray_port::PortUri;
use dray_socket::Place;
use dray_switch::PortConfig;
use dray_switch::client::{Client, ClientError};
use dray_wire::MacAddr;
use rustix::fs::{Mode, OFlags, Uid, XattrFlags, fchown, fsetxattr, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::addresses;
use crate::ends::{Ends, Wanted};
use crate::kind::{Kind, MTU_USUAL};
use crate::namespace::{self, Identity};
use crate::reply::{CniError, code};

/// The record of an attachment. It is written before any part of the attachment is made, so each
/// part may be missing.
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
    /// File of the container's network namespace; empty for a claim, which is prepared before
    /// there is one.
    pub netns: PathBuf,
    /// Identity of that namespace.
    pub(crate) identity: Identity,
    /// Control socket of the switch.
    pub control: PathBuf,
    /// The port. No other port of the switch has its address.
    pub port: PortConfig,
    /// Directory of the socket, if that is a file.
    pub(crate) directory: Option<PathBuf>,
    /// Device information file that the plugin has written.
    pub(crate) device_info: Option<PathBuf>,
    /// True if a container engine moves the interface into the container, under a name of its
    /// choice. Until then it is in the namespace of engine and plugin, called `interface`;
    /// `identity` has no meaning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_moved: bool,
    /// True if the network lets the port take its address from a station that the switch has
    /// learned behind another port.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) moves_mac: bool,
}

/// Default directory of the directories for sockets of containers. Only root can enter it, so that
/// a container reaches only the one that is mounted into it.
const DIRECTORIES: &str = "/run/dray/vhost";

impl Attachment {
    pub(crate) fn key(&self) -> String {
        key_of(&self.container, &self.interface)
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
            false => !self.is_claim() && namespace::is_gone(&self.netns, &self.identity),
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

    /// Makes everything that the record describes; the interface gets the addresses and routes of
    /// an IPAM plugin's result.
    pub(crate) fn attach(&self, ends: &Ends, addresses: Option<&Value>) -> Result<(), CniError> {
        self.create(ends)?;
        self.add_port(&self.open(ends)?)?;
        let (Kind::Tap, Some(addresses)) = (self.kind, addresses) else { return Ok(()) };
        namespace::within(&self.netns, || addresses::configure(&self.interface, addresses))
            .map_err(|error| CniError::io(&self.netns.display(), &error))?
    }

    /// Creates what the port uses: the interface in the container, or the directory.
    pub(crate) fn create(&self, ends: &Ends) -> Result<(), CniError> {
        if let PortUri::Tap(uri) = &self.port.uri {
            return ends.create(&Wanted {
                interface: &self.interface,
                netns: (!self.is_moved).then_some(&self.netns),
                mac: self.mac().unwrap_or_else(|| own_mac(&self.key())),
                mtu: uri.mtu.unwrap_or(MTU_USUAL),
                is_multi_queue: uri.queues > 1,
                id: end_id(&self.key()),
                switch: self.switch(),
            });
        }
        match &self.directory {
            None => Ok(()),
            Some(directory) => {
                let user = self.client().user().map_err(|error| switch_error(&error))?;
                let created = create_directory(directory, self.is_read_only(), user);
                created.map_err(|error| {
                    CniError::io(&format!("directory {}", directory.display()), &error)
                })
            }
        }
    }

    /// Returns a number of the switch.
    fn switch(&self) -> u64 {
        hash(&self.control.to_string_lossy())
    }

    /// Opens what the switch needs, in the container's namespace, or in that of the ends.
    pub(crate) fn open(&self, ends: &Ends) -> Result<Vec<OwnedFd>, CniError> {
        if self.port.fd == 0 {
            return Ok(Vec::new());
        }
        if !self.is_moved && self.is_gone() {
            let what = "the container's network namespace is gone, or not visible here";
            return Err(CniError::io(&self.netns.display(), &what));
        }
        let prepare = || {
            let opened = self.port.uri.prepare();
            opened.map_err(|error| CniError::new(code::IO_FAILURE, error.to_string()))
        };
        if let PortUri::Tap(uri) = &self.port.uri {
            // Opening it would create it again, without the program that forwards frames to it.
            let find = || Interface::find(&uri.interface).map(drop);
            namespace::within(&ends.netns(), find).and_then(|found| found).map_err(|error| {
                CniError::io(&format!("interface {} of the switch", uri.interface), &error)
            })?;
            let mut descriptors = prepare()?;
            descriptors.push(ends.table().map_err(|error| CniError::io(&uri.interface, &error))?);
            return Ok(descriptors);
        }
        if self.is_claim() {
            return prepare();
        }
        namespace::within(&self.netns, prepare)
            .map_err(|error| CniError::io(&self.netns.display(), &error))?
    }

    /// Passes the port to the switch.
    pub(crate) fn add_port(&self, descriptors: &[OwnedFd]) -> Result<(), CniError> {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let client = self.client();
        let added = match self.moves_mac {
            true => client.force_port_with(&self.port, &descriptors),
            false => client.add_port_with(&self.port, &descriptors),
        };
        added.map(drop).map_err(|error| switch_error(&error))
    }

    /// Passes the port to the switch again. Its address was free when it was added first: what the
    /// switch has learned since it started again does not keep the container from it.
    pub(crate) fn restore_port(&self, descriptors: &[OwnedFd]) -> Result<(), CniError> {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let added = self.client().force_port_with(&self.port, &descriptors);
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

    /// Removes the port, if the switch runs and has it.
    pub(crate) fn detach(&self) -> Result<(), CniError> {
        let removed = self.has_port().and_then(|has_port| match has_port {
            true => self.client().remove_port(&self.port.name),
            false => Ok(()),
        });
        match removed {
            Ok(())
            | Err(ClientError::NotRunning { .. } | ClientError::Refused { status: 404, .. }) => {
                Ok(())
            }
            Err(error) => Err(switch_error(&error)),
        }
    }

    /// Removes everything that exists of an attachment without a port but its record.
    pub(crate) fn release(&self, ends: &Ends) -> Result<(), CniError> {
        if self.kind == Kind::Tap {
            let removed = ends.remove(end_id(&self.key()));
            removed
                .map_err(|error| CniError::io(&format!("interface {}", self.interface), &error))?;
        }
        if let Some(directory) = &self.directory {
            remove_directory(directory)
                .map_err(|error| CniError::io(&directory.display(), &error))?;
        }
        if let Some(path) = &self.device_info {
            // A file that cannot be reached any more, or never could be, is not this process's.
            if let Ok(place) = Place::of(path) {
                place.remove().map_err(|error| CniError::io(&path.display(), &error))?;
            }
        }
        Ok(())
    }
}

/// Returns the key of an attachment: the name of its record. Neither part can contain a colon.
pub(crate) fn key_of(container: &str, interface: &str) -> String {
    format!("{container}:{interface}")
}

/// Returns the address of a container that has none in its configuration, the same each time.
pub(crate) fn own_mac(key: &str) -> MacAddr {
    MacAddr::local(hash(key))
}

/// Returns the number of the switch's ends of the interface of the attachment `key`.
pub(crate) fn end_id(key: &str) -> u64 {
    hash(key)
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

/// Creates a directory, unless it exists, in one that only root can enter. The switch, of the user
/// `user`, creates the socket there if it `is_read_only` for the container. Otherwise any user may
/// write to it, so it is a file system of its own: what a container puts there is bounded, and
/// disappears as a whole.
fn create_directory(directory: &Path, is_read_only: bool, user: u32) -> io::Result<()> {
    let parent = dray_socket::own_directory(directory.parent().unwrap_or(directory), 0o700)?;
    let name = directory.file_name().unwrap_or_default();
    match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => {}
        made => made?,
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |name: &OsStr| openat(&parent, name, flags, Mode::empty());
    let below = open(name)?;
    if is_read_only {
        if user == 0 {
            return Ok(());
        }
        fchown(&below, Some(Uid::from_raw(user)), None)?;
        let search = access_list(7, &[(user, 1)], 0);
        return set_access_list(&open(".".as_ref())?, c"system.posix_acl_access", &search);
    }
    if fstat(&below)?.st_dev != fstat(&parent)?.st_dev {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = c"mode=0777,size=64k,nr_inodes=64";
    mount("dray", format!("/proc/self/fd/{}", below.as_raw_fd()), "tmpfs", flags, options)?;
    // The switch has no capabilities, so it may connect only to sockets that it may write to.
    // libvirt's QEMU creates its socket with umask 0002, which leaves this right to the group
    // alone. Root is one more, since the next switch may run as root.
    let users: BTreeSet<_> = [0, user].into_iter().collect();
    let users: Vec<_> = users.into_iter().map(|user| (user, 7)).collect();
    set_access_list(&open(name)?, c"system.posix_acl_default", &access_list(7, &users, 7))
}

/// Sets an access control list, if the file system has them.
fn set_access_list(directory: &OwnedFd, name: &CStr, list: &[u8]) -> io::Result<()> {
    match fsetxattr(directory, name, list, XattrFlags::empty()) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns an access control list (acl(5), in the form of the kernel's posix_acl_xattr.h) with the
/// rights of the owner, those of `users`, in ascending order, and those of the group and all
/// others.
fn access_list(owner: u16, users: &[(u32, u16)], others: u16) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    let mask = users.iter().fold(others, |mask, (_, rights)| mask | rights);
    // Tags: the owner, a user, the group, the mask of both, all others.
    let users = users.iter().map(|(user, rights)| (2, *rights, *user));
    let rest = [(4, others, NOBODY), (16, mask, NOBODY), (32, others, NOBODY)];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in [(1u16, owner, NOBODY)].into_iter().chain(users).chain(rest) {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

fn remove_directory(directory: &Path) -> io::Result<()> {
    // A directory that another user has put in its place is left alone.
    if !matches!(
        dray_socket::find_own_directory(directory.parent().unwrap_or(directory)),
        Ok(Some(_))
    ) {
        return Ok(());
    }
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

/// Returns true if there is a device information file of another program.
pub(crate) fn exists(path: &Path) -> bool {
    Place::of(path).is_ok_and(|place| place.stat().is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The switch creates a claim's socket there.
    #[test]
    fn directory_for_the_switchs_socket_admits_its_user_alone() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let directory = folder.path().join("vhost/port");
        for user in [0, 4242] {
            create_directory(&directory, true, user).unwrap();
            let may = |who: u32, what: &str| {
                let who = who.to_string();
                let mut command = std::process::Command::new("setpriv");
                command.args(["--reuid", &who, "--regid", &who, "--clear-groups"]);
                command.arg(what).arg(directory.join("file")).stderr(std::process::Stdio::null());
                command.status().unwrap().success()
            };
            assert_eq!(may(4242, "touch"), user == 4242);
            assert!(!may(5555, "touch") && !may(5555, "ls"));
            assert_eq!(may(4242, "rm"), user == 4242);
            // Root still finds it private.
            dray_socket::own_directory(&folder.path().join("vhost"), 0o700).unwrap();
            remove_directory(&directory).unwrap();
        }
    }

    #[test]
    fn own_address_is_stable_and_of_a_station() {
        let mac = own_mac("a:eth0");
        assert_eq!(mac, own_mac("a:eth0"));
        assert_ne!(mac, own_mac("a:eth1"));
        assert!(mac.is_station());
    }
}

//! The switch's ends of containers' interfaces, in a network namespace of their own: so the node's
//! own namespace has no interface for each container, which other programs of the node might
//! configure.
//!
//! A container's interface is one end of a veth pair. A BPF program at the other end passes its
//! frames to the TAP interface that the switch has open, and back; or from container to container,
//! if the switch allows it ([`Bypass`]). The namespace exists as long as there are such ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use dray_bpf::{Bypass, BypassEntry, CONTAINERS_MAX};
use dray_netdev::{Interface, NetworkNamespace, TapFormat, create_tap};
use dray_socket::{Lock, Place};
use dray_wire::MacAddr;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::addresses::Netlink;
use crate::reply::{CniError, code};

/// The ends of all containers of one records.
pub(crate) struct Ends {
    /// Directory of the store's records.
    folder: PathBuf,
}

/// Ends to create.
pub(crate) struct Wanted<'w> {
    /// Interface in the container.
    pub(crate) interface: &'w str,
    /// File of the container's network namespace; `None`: the thread's.
    pub(crate) netns: Option<&'w Path>,
    pub(crate) mac: MacAddr,
    pub(crate) mtu: usize,
    pub(crate) is_multi_queue: bool,
    /// Number of the ends, from the attachment's key.
    pub(crate) id: u64,
    /// Number of the switch.
    pub(crate) switch: u64,
}

/// Hexadecimal digits of a number of ends: as many as the name of an interface has room for, so
/// that no two containers of a node get the same ones.
const DIGITS: usize = 11;

/// Returns the name of the TAP interface of the ends with the number `id`.
pub(crate) fn tap_name(id: u64) -> String {
    name("tap", id)
}

fn veth_name(id: u64) -> String {
    name("veth", id)
}

fn name(prefix: &str, id: u64) -> String {
    format!("{prefix}{:0DIGITS$x}", id >> (64 - 4 * DIGITS))
}

impl Ends {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns the file of the network namespace.
    pub(crate) fn netns(&self) -> PathBuf {
        self.folder.join("netns")
    }

    /// Returns the file of the numbers by which the BPF program is found.
    fn program(&self) -> PathBuf {
        self.folder.join("bypass")
    }

    /// Waits until no other process creates or removes ends.
    fn lock(&self) -> io::Result<Lock> {
        Lock::take(&self.folder.join("ends.lock"))
    }

    /// Creates a container's interface and the ends of it. If it fails, parts may be left.
    pub(crate) fn create(&self, wanted: &Wanted<'_>) -> Result<(), CniError> {
        let netns = self.netns();
        let failed = |error| CniError::io(&netns.display(), &error);
        let _lock = self.lock().map_err(failed)?;
        let container = match wanted.netns {
            Some(path) => {
                NetworkNamespace::open(path).map_err(|error| CniError::io(&path.display(), &error))
            }
            None => NetworkNamespace::current().map_err(failed),
        }?;
        let namespace = self.open().map_err(failed)?;
        let mut bypass = self.bypass().map_err(|error| {
            let what = "the bypass, a BPF program, which needs Linux 5.10 or later";
            CniError::io(&what, &error)
        })?;
        let create = || Ok(create(wanted, &container, &mut bypass));
        namespace.enter(create).map_err(failed)?
    }

    /// Returns the table of the bypass, for the switch.
    pub(crate) fn table(&self) -> io::Result<OwnedFd> {
        let what = || io::Error::other("the bypass, a BPF program, is not loaded any more");
        self.find_bypass()?.ok_or_else(what)?.table()
    }

    /// Closes the bypass of a container whose port the switch lacks, as far as there is one.
    pub(crate) fn shut(&self, id: u64) {
        if let Ok(entry) = self.table().and_then(|table| BypassEntry::find(table, &tap_name(id))) {
            entry.close();
        }
    }

    /// Removes the ends of a container with the number `id`, with the interface in the container,
    /// as far as they exist.
    pub(crate) fn remove(&self, id: u64) -> io::Result<()> {
        // Ends are made only once this directory exists.
        if !self.folder.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        // Before the interfaces: the kernel removes these only when no frame is on its way to them,
        // and only then is their number free.
        if let Some(mut bypass) = self.find_bypass()? {
            bypass.remove(&tap_name(id))?;
        }
        let netns = self.netns();
        let is_last = match is_namespace(&netns) {
            true => NetworkNamespace::open(&netns)?.enter(|| {
                remove(id)?;
                has_no_ends()
            })?,
            false => true,
        };
        if is_last { self.close() } else { Ok(()) }
    }

    /// Opens the namespace, which is created if it does not exist.
    fn open(&self) -> io::Result<NetworkNamespace> {
        let path = self.netns();
        if is_namespace(&path) {
            return NetworkNamespace::open(&path);
        }
        let namespace = NetworkNamespace::scratch()?;
        // These ends have no addresses of their own, and announce none.
        namespace.enter(|| {
            match fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1") {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })?;
        File::create(&path)?;
        let own = format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd());
        mount_bind(own, &path)?;
        Ok(namespace)
    }

    /// Removes the namespace, which has no ends.
    fn close(&self) -> io::Result<()> {
        let path = self.netns();
        match unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // It is not mounted, or does not exist.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        Place::of(&self.program())?.remove()?;
        Place::of(&path)?.remove()
    }

    /// Finds the loaded program, if there is one.
    fn find_bypass(&self) -> io::Result<Option<Bypass>> {
        let ids = match fs::read(self.program()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            ids => ids?,
        };
        let ids = serde_json::from_slice(&ids).map_err(|error| {
            let what = format!("{}: {error}; remove this file", self.program().display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Bypass::find(ids)
    }

    /// Finds the program, or loads it.
    fn bypass(&self) -> io::Result<Bypass> {
        if let Some(bypass) = self.find_bypass()? {
            return Ok(bypass);
        }
        let bypass = Bypass::load()?;
        Place::of(&self.program())?.replace(&serde_json::to_vec(&bypass.ids())?, 0o600)?;
        Ok(bypass)
    }
}

/// Returns true if the file is that of a namespace, not an empty one that a process which was
/// killed left.
fn is_namespace(path: &Path) -> bool {
    // `NSFS_MAGIC` of linux/magic.h.
    rustix::fs::statfs(path).is_ok_and(|system| system.f_type == 0x6e73_6673)
}

/// Creates the ends in the thread's namespace, and the interface in the container.
fn create(
    wanted: &Wanted<'_>,
    container: &NetworkNamespace,
    bypass: &mut Bypass,
) -> Result<(), CniError> {
    let (veth, tap) = (veth_name(wanted.id), tap_name(wanted.id));
    let netlink = Netlink::open().map_err(failed(&veth))?;
    let number = create_pair(wanted, &veth, container, &netlink, bypass)?;
    let (switch, mac, mtu) = (wanted.switch, wanted.mac.0, wanted.mtu);
    bypass.add(number, &tap, switch, mac, mtu).map_err(failed(&tap))?;
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let device = device.map_err(|error| {
        let what = "/dev/net/tun (the kernel needs CONFIG_TUN)";
        CniError::io(&what, &error)
    })?;
    let format = TapFormat { has_header: true, is_multi_queue: wanted.is_multi_queue };
    create_tap(device.as_fd(), &tap, 2 * number + 1, format).map_err(failed(&tap))?;
    let mut group = LinkMessage::default();
    group.header.index = 2 * number + 1;
    group.attributes.push(LinkAttribute::Group(number));
    netlink.change(RouteNetlinkMessage::SetLink(group), 0).map_err(failed(&tap))?;
    for (index, name) in [(2 * number, &veth), (2 * number + 1, &tap)] {
        attach(&netlink, index, bypass).map_err(failed(name))?;
    }
    let set_up = || Interface::find(wanted.interface)?.set_up();
    container.enter(set_up).map_err(failed(wanted.interface))
}

/// Creates a veth pair, with the first number that is free; returns that.
fn create_pair(
    wanted: &Wanted<'_>,
    veth: &str,
    container: &NetworkNamespace,
    netlink: &Netlink,
    bypass: &Bypass,
) -> Result<u32, CniError> {
    // 0 is the number of the loopback interface.
    let mut number = 0;
    while let Some(next) = bypass.free_number(number) {
        number = next;
        // A request that was killed, or that belongs to an earlier version's table, has left
        // interfaces.
        if [2 * number, 2 * number + 1].into_iter().any(Interface::is_index_used) {
            continue;
        }
        let pair = pair(wanted, veth, number, container);
        return match netlink.change(pair, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(number),
            Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => {
                let name = wanted.interface;
                let what = format!(
                    "CNI_IFNAME={name}: the container already has this interface; give another name"
                );
                Err(CniError::new(code::INVALID_ENVIRONMENT, what))
            }
            Err(error) => Err(failed(wanted.interface)(error)),
        };
    }
    let what = format!("there are {CONTAINERS_MAX} containers with interfaces, the maximum");
    Err(CniError::new(code::TRY_AGAIN_LATER, what))
}

fn failed(name: &str) -> impl Fn(io::Error) -> CniError {
    move |error| CniError::io(&format!("interface {name}"), &error)
}

/// Returns the request for a veth pair, of which the switch's end is up.
fn pair(
    wanted: &Wanted<'_>,
    veth: &str,
    number: u32,
    container: &NetworkNamespace,
) -> RouteNetlinkMessage {
    let end = |name: &str| {
        let mut end = LinkMessage::default();
        end.attributes =
            vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Mtu(wanted.mtu as u32)];
        end
    };
    let mut inside = end(wanted.interface);
    inside.attributes.push(LinkAttribute::Address(wanted.mac.0.to_vec()));
    inside.attributes.push(LinkAttribute::NetNsFd(container.as_fd().as_raw_fd()));
    let mut outside = end(veth);
    outside.header.index = 2 * number;
    outside.header.flags = LinkFlags::Up;
    outside.header.change_mask = LinkFlags::Up;
    outside.attributes.push(LinkAttribute::Group(number));
    outside.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(inside))),
    ]));
    RouteNetlinkMessage::NewLink(outside)
}

/// Checks that the kernel has what interfaces of kind `tap` need, at the loopback interface of the
/// thread's network namespace.
pub fn check_kernel() -> io::Result<()> {
    const LOOPBACK: u32 = 1;
    attach(&Netlink::open()?, LOOPBACK, &Bypass::load()?)
}

/// Attaches the program to the frames that an interface receives (tc-bpf(8)).
fn attach(netlink: &Netlink, index: u32, bypass: &Bypass) -> io::Result<()> {
    let change = |request, option: &str| {
        netlink.change(request, NLM_F_CREATE | NLM_F_EXCL).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(format!("the kernel needs {option}")),
            _ => error,
        })
    };
    let at = |parent: TcHandle, kind: &str| {
        let mut message = TcMessage::with_index(index as i32);
        message.header.parent = parent;
        message.attributes = vec![TcAttribute::Kind(kind.to_owned())];
        message
    };
    let mut qdisc = at(TcHandle::CLSACT, "clsact");
    qdisc.header.handle = TcHandle { major: u16::MAX, minor: 0 };
    change(RouteNetlinkMessage::NewQueueDiscipline(qdisc), "CONFIG_NET_SCH_INGRESS")?;
    let ingress = TcHandle { major: u16::MAX, minor: TcHandle::MIN_INGRESS };
    let mut filter = at(ingress, "bpf");
    // Priority 1, and `ETH_P_ALL` of linux/if_ether.h.
    filter.header.info = 1 << 16 | u32::from(0x3_u16.to_be());
    filter.attributes.push(TcAttribute::Options(vec![
        TcOption::Bpf(TcFilterBpfOption::ProgFd(bypass.program().as_raw_fd() as u32)),
        TcOption::Bpf(TcFilterBpfOption::ProgName("dray_bypass".to_owned())),
        TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
    ]));
    change(RouteNetlinkMessage::NewTrafficFilter(filter), "CONFIG_NET_CLS_BPF")
}

/// Removes the ends with the number `id` in the thread's namespace.
fn remove(id: u64) -> io::Result<()> {
    let names = [veth_name(id), tap_name(id)];
    let found = || names.iter().filter_map(|name| Some(Interface::find(name).ok()?.index()));
    let netlink = Netlink::open()?;
    let delete = |index, attributes| {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = attributes;
        netlink.change(RouteNetlinkMessage::DelLink(link), 0)
    };
    // Both at once: the kernel waits for each removal.
    let number = found().next().map(|index| index / 2);
    let group = |number| delete(0, vec![LinkAttribute::Group(number)]);
    match number.map_or(Ok(()), group) {
        Err(error) if error.raw_os_error() != Some(Errno::NODEV.raw_os_error()) => {
            return Err(error);
        }
        _ => {}
    }
    // A process that was killed has left one without its group.
    found().try_for_each(|index| delete(index, Vec::new()))
}

/// Returns true if the thread's namespace has no ends. The kernel may have put interfaces of its
/// own there, for tunnels.
fn has_no_ends() -> io::Result<bool> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    let is_end = |name: &str| {
        let id = name.strip_prefix("veth").or_else(|| name.strip_prefix("tap"));
        id.is_some_and(|id| id.len() == DIGITS && u64::from_str_radix(id, 16).is_ok())
    };
    // Each line begins with a name and a colon, but for the head of the table.
    let mut names = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    Ok(!names.any(is_end))
}

//! Containers, seen from outside ([`Container`]) and from inside ([`enter`]).

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use dray_traffic::agent::{Event, Request};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::namespace::{Init, NetworkNamespace, ignore_children, spawn};
use crate::netlink::Netlink;
use crate::process::{PeerDir, Process};
use crate::runtime::{Engine, Helper};
use crate::{Cancel, Holdings, LabError};

/// Identifies a container within its lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub(crate) usize);

/// Command with which the program starts itself inside a container.
pub const INSIDE_COMMAND: &str = "inside";

/// Index of `lo` in every network namespace.
const LOOPBACK: u32 = 1;

/// Error text for a container that is gone.
const ENDED: &str = "its first process ended";

/// A container that is starting. It is killed when this value is dropped or the thread that made it
/// ends.
pub(crate) struct Starting {
    name: String,
    cpus: Vec<usize>,
    by: StartedBy,
}

enum StartedBy {
    Lab {
        init: Init,
        agent: UnixStream,
    },
    /// Started by an engine, through a process that ends with the container; the agent will
    /// connect.
    Engine {
        process: Process,
        agents: UnixListener,
    },
}

/// A running container. It is killed when this value is dropped or the thread that made it ends.
pub struct Container {
    name: String,
    init: Init,
    namespace: NetworkNamespace,
    netlink: Netlink,
    agent: UnixStream,
    /// Incomplete last line received from the agent.
    received: Vec<u8>,
    /// Events from the agent that have not been read yet.
    events: VecDeque<Event>,
    pub(crate) interfaces: usize,
    /// The engine's processes, if an engine made the container.
    run_by: Option<RunBy>,
}

/// Processes that run a container made by an engine. They live as long as the container.
struct RunBy {
    /// The engine's process for this container.
    process: Process,
    /// The parent of the container's first process, if that is a different process.
    monitor: Option<Helper>,
}

impl Starting {
    /// Starts a container; `program` is the `dray` that runs inside, and `host` the container that
    /// stands for the host.
    pub(crate) fn new(
        program: &Path,
        name: &str,
        cpus: &[usize],
        host: Option<&Container>,
    ) -> Result<Self, LabError> {
        let doing = |what: &str| LabError::doing(format!("container {name}: {what}"));
        let (agent, theirs) = UnixStream::pair().map_err(doing("socket pair"))?;
        let argument = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let argv = [program.as_os_str().as_bytes(), INSIDE_COMMAND.as_bytes(), name.as_bytes()]
            .map(argument)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(doing("command"))?;
        let init = spawn(&argv, theirs.as_fd(), host.map(Container::namespace))
            .map_err(doing("clone3"))?;
        Ok(Self { name: name.to_owned(), cpus: cpus.to_vec(), by: StartedBy::Lab { init, agent } })
    }

    /// Starts a container by an engine, running inside `host`. `dir` holds its sockets; `address`
    /// is its address in the engine's own network, if it joins one.
    pub(crate) fn by_engine(
        engine: &Engine,
        host: &Container,
        dir: &PeerDir,
        name: &str,
        cpus: &[usize],
        address: Option<Ipv4Addr>,
    ) -> Result<Self, LabError> {
        let path = dir.sockets().join(format!("{name}.agent"));
        let doing = |what: &str| LabError::doing(format!("container {name}: {what}"));
        let agents = UnixListener::bind(&path).map_err(doing("socket"))?;
        agents.set_nonblocking(true).map_err(doing("socket"))?;
        let arguments = [INSIDE_COMMAND, name, "--socket", &*path.to_string_lossy()];
        let process = engine.run(&host.init, name, cpus, address, &arguments)?;
        let by = StartedBy::Engine { process, agents };
        Ok(Self { name: name.to_owned(), cpus: cpus.to_vec(), by })
    }

    /// Waits for the container's first process; its inside may not be set up yet. Also returns the
    /// CPUs that the container runs on.
    pub(crate) fn wait_until_started(
        self,
        cancel: &Cancel,
    ) -> Result<(Container, Vec<usize>), LabError> {
        let Self { name, cpus, by } = self;
        let doing = |what: &str| LabError::doing(format!("container {name}: {what}"));
        // An engine's container may end before it is set up, and its files in /proc with it.
        let inspecting = |what: &str| {
            let failed = doing(what);
            |error: io::Error| match error.raw_os_error() {
                Some(libc::ESRCH | libc::ENOENT) => {
                    LabError::Container { container: name.clone(), what: ENDED.to_owned() }
                }
                _ => failed(error),
            }
        };
        let (init, agent, run_by) = match by {
            StartedBy::Lab { init, agent } => (init, agent, None),
            StartedBy::Engine { mut process, agents } => {
                let mut agent = None;
                process.wait_until(cancel, "connection from its agent", |_| {
                    agent = agents.accept().ok();
                    agent.is_some()
                })?;
                let (agent, _) = agent.expect("the agent has connected");
                let credentials = socket_peercred(&agent)
                    .map_err(|errno| doing("peer of the agent's socket")(errno.into()))?;
                let init = Init::of(credentials.pid).map_err(inspecting("first process"))?;
                let monitor = Helper::parent_of(init.pid).map_err(inspecting("parent process"))?;
                let monitor = monitor.filter(|monitor| monitor.pid() != process.pid());
                (init, agent, Some(RunBy { process, monitor }))
            }
        };
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(Some(init.pid), &set)
            .map_err(|errno| inspecting("CPU affinity")(errno.into()))?;
        let namespace = init.network().map_err(inspecting("network namespace"))?;
        if run_by.is_some() {
            namespace.enter(silence_kernel).map_err(doing("disabling traffic of the kernel"))?;
        }
        let netlink = Netlink::open(&namespace).map_err(doing("netlink"))?;
        netlink.set_up(LOOPBACK).map_err(doing("loopback"))?;
        let (received, events) = Default::default();
        let container = Container {
            name,
            init,
            namespace,
            netlink,
            agent,
            received,
            events,
            interfaces: 0,
            run_by,
        };
        Ok((container, cpus))
    }
}

impl Container {
    /// The container's name, also its host name inside.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// PID of the container's first process, as seen from outside.
    pub fn pid(&self) -> rustix::process::Pid {
        self.init.pid
    }

    /// Returns true while the container's first process, and so the container, runs.
    pub fn is_running(&self) -> bool {
        self.init.is_running()
    }

    /// The container's network namespace.
    pub fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// A netlink socket inside the container.
    pub fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// Sends a request to the agent inside.
    pub fn request(&mut self, request: &Request) -> Result<(), LabError> {
        let mut line = serde_json::to_vec(request).expect("requests are plain data");
        line.push(b'\n');
        self.agent.write_all(&line).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.failure(ENDED),
            _ => self.failure(&error.to_string()),
        })
    }

    /// Returns the next unread event from the agent.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Reads the events that the agent has sent so far. Fails if the agent or its role has failed.
    pub(crate) fn receive_events(&mut self) -> Result<(), LabError> {
        let mut chunk = [0; 1 << 16];
        loop {
            let len = match recv(&self.agent, &mut chunk[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(self.failure(ENDED)),
                Ok((len, _)) => len,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
                Err(errno) => return Err(self.failure(&io::Error::from(errno).to_string())),
            };
            for piece in chunk[..len].split_inclusive(|&byte| byte == b'\n') {
                self.received.extend_from_slice(piece);
                if !piece.ends_with(b"\n") {
                    continue;
                }
                let line = std::mem::take(&mut self.received);
                match serde_json::from_slice(&line) {
                    Ok(Event::Failed { message }) => return Err(self.failure(&message)),
                    Ok(event) => self.events.push_back(event),
                    Err(error) => return Err(self.failure(&error.to_string())),
                }
            }
        }
    }

    /// Fails if the container, or a process that runs it, has ended.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        let is_running = self.init.is_running();
        // Report all that ended: the end of one may have caused the end of the other.
        let mut ended: Vec<String> = (!is_running).then(|| ENDED.to_owned()).into_iter().collect();
        if let Some(RunBy { process, monitor }) = &mut self.run_by {
            ended.extend(monitor.as_ref().and_then(Helper::end));
            ended.extend(process.end().map(|end| format!("its runtime process {end}")));
        }
        if ended.is_empty() { Ok(()) } else { Err(self.failure(&ended.join("; "))) }
    }

    /// Descriptors that become readable when [`check`](Self::check) or
    /// [`receive_events`](Self::receive_events) should be called.
    pub(crate) fn signs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let run_by = self.run_by.iter().flat_map(|RunBy { process, monitor }| {
            monitor.iter().map(Helper::sign).chain([process.sign()])
        });
        run_by.chain([self.init.sign(), self.agent.as_fd()])
    }

    /// Resources held by the container's agent, which runs the role.
    pub fn holdings(&self) -> Result<Holdings, LabError> {
        let doing = LabError::doing(format!("resources of container {}", self.name));
        Holdings::of(self.init.pid).map_err(doing)
    }

    pub(crate) fn failure(&self, what: &str) -> LabError {
        LabError::Container { container: self.name.clone(), what: what.to_owned() }
    }

    pub(crate) fn init(&self) -> &Init {
        &self.init
    }

    /// Returns true if an engine made the container.
    pub(crate) fn is_by_engine(&self) -> bool {
        self.run_by.is_some()
    }

    pub(crate) fn kill(&self) {
        self.init.kill();
    }
}

/// Sets up the container around the calling process, which must be the first one of its namespaces:
/// host name, private mounts, its own `/proc` and `/sys`, and no IPv6, whose routers and listeners
/// would send unsolicited frames.
pub fn enter(name: &str) -> Result<(), LabError> {
    if std::process::id() != 1 {
        // Outside a container this would change the mounts of the machine itself.
        let what = "internal command: dray runs it as the first process of a container".to_owned();
        return Err(LabError::Container { container: name.to_owned(), what });
    }
    let doing =
        |what: &'static str| move |errno: rustix::io::Errno| LabError::doing(what)(errno.into());
    rustix::system::sethostname(name.as_bytes()).map_err(doing("sethostname"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    match mount_change("/", private) {
        // In a chroot the root is not a mount point; making the directories that we mount on
        // private is enough.
        Err(rustix::io::Errno::INVAL) => ["/proc", "/sys"]
            .into_iter()
            .try_for_each(|folder| mount_change(folder, private))
            .map_err(doing("private /proc and /sys"))?,
        result => result.map_err(doing("private mounts"))?,
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(doing("mount /proc"))?;
    mount("sysfs", "/sys", "sysfs", flags, None).map_err(doing("mount /sys"))?;
    silence_kernel().map_err(LabError::doing("disabling traffic of the kernel"))?;
    // Container engines leave orphaned processes to the first process, which waits for none: have
    // the kernel reap them.
    ignore_children();
    Ok(())
}

/// Stops the kernel from sending frames of its own in this network namespace: disables IPv6, which
/// announces its addresses, and reports of the multicast groups that bridges join. Only our packets
/// shall be counted.
fn silence_kernel() -> io::Result<()> {
    let net = Path::new("/proc/sys/net");
    let conf = net.join("ipv6/conf");
    // A kernel built without IPv6 needs no switch.
    if conf.exists() {
        for scope in ["all", "default"] {
            fs::write(conf.join(scope).join("disable_ipv6"), "1")?;
        }
    }
    let reports = net.join("ipv4/igmp_link_local_mcast_reports");
    if reports.exists() {
        fs::write(reports, "0")?;
    }
    Ok(())
}

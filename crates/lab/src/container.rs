//! A container, seen from outside ([`Container`]) and from inside ([`enter`]).

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use dray_traffic::agent::{Event, Request};
use dray_traffic::{Agreement, Report};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::sockopt::socket_peercred;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::namespace::{Init, NetworkNamespace, ignore_children, spawn};
use crate::netlink::Netlink;
use crate::peer::PeerDir;
use crate::peer::process::Process;
use crate::runtime::Engine;
use crate::{Cancel, Holdings, LabError};

/// Names a container within its lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub(crate) usize);

/// The command by which the program starts itself inside a container.
pub const INSIDE_COMMAND: &str = "inside";

/// How long a container may take to come up, and a role to open its ports: hundreds at a time on few
/// CPUs, while the kernel takes down those that were there before.
const PATIENCE: Duration = Duration::from_secs(60);

/// The index of `lo` in every network namespace.
const LOOPBACK: u32 = 1;

/// A container that is coming up. It dies with this value, and with the thread that made it.
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
    /// An engine, by a process that ends with the container; the agent will connect.
    Engine {
        process: Process,
        agents: UnixListener,
    },
}

/// A running container. It dies with this value, and with the thread that made it.
pub struct Container {
    name: String,
    init: Init,
    namespace: NetworkNamespace,
    netlink: Netlink,
    agent: UnixStream,
    received: Vec<u8>,
    pub(crate) interfaces: usize,
    /// The engine's process, where there is one.
    engine: Option<Process>,
}

impl Starting {
    /// Starts a container; `program` is the `dray` that runs inside.
    pub(crate) fn new(program: &Path, name: &str, cpus: &[usize]) -> Result<Self, LabError> {
        let doing = |what: &str| LabError::doing(format!("container {name}: {what}"));
        let (agent, theirs) = UnixStream::pair().map_err(doing("socket pair"))?;
        let argument = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let argv = [program.as_os_str().as_bytes(), INSIDE_COMMAND.as_bytes(), name.as_bytes()]
            .map(argument)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(doing("command"))?;
        let init = spawn(&argv, theirs.as_fd()).map_err(doing("clone3"))?;
        Ok(Self { name: name.to_owned(), cpus: cpus.to_vec(), by: StartedBy::Lab { init, agent } })
    }

    /// Has an engine start a container, which runs it inside `host`. Its sockets are in `dir`; its address is
    /// that in the engine's own network, where it joins that.
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
        let process = engine.run(&host.init, name, cpus, address, &path)?;
        let by = StartedBy::Engine { process, agents };
        Ok(Self { name: name.to_owned(), cpus: cpus.to_vec(), by })
    }

    /// Waits until the container's inside is set up. Returns the CPUs that it runs on as well.
    pub(crate) fn wait_until_up(
        self,
        cancel: &Cancel,
    ) -> Result<(Container, Vec<usize>), LabError> {
        let Self { name, cpus, by } = self;
        let doing = |what: &str| LabError::doing(format!("container {name}: {what}"));
        let (init, agent, engine) = match by {
            StartedBy::Lab { init, agent } => (init, agent, None),
            StartedBy::Engine { mut process, agents } => {
                let mut agent = None;
                process.wait_until(cancel, "sign of its agent", |_| {
                    agent = agents.accept().ok();
                    agent.is_some()
                })?;
                let (agent, _) = agent.expect("it was waited for");
                agent.set_nonblocking(false).map_err(doing("socket"))?;
                let credentials = socket_peercred(&agent)
                    .map_err(|errno| doing("whose socket it is")(errno.into()))?;
                let init = Init::of(credentials.pid).map_err(doing("first process"))?;
                (init, agent, Some(process))
            }
        };
        agent.set_read_timeout(Some(Cancel::INTERVAL)).map_err(doing("socket time-out"))?;
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(Some(init.pid), &set)
            .map_err(|errno| doing("CPU affinity")(errno.into()))?;
        let namespace = init.network().map_err(doing("network namespace"))?;
        if engine.is_some() {
            namespace.enter(keep_quiet).map_err(doing("no traffic of the kernel's own"))?;
        }
        let netlink = Netlink::open(&namespace).map_err(doing("netlink"))?;
        netlink.set_up(LOOPBACK).map_err(doing("loopback"))?;
        let received = Vec::new();
        let mut container =
            Container { name, init, namespace, netlink, agent, received, interfaces: 0, engine };
        match container.event(cancel, Duration::from_secs(20))? {
            Event::Up => Ok((container, cpus)),
            other => Err(container.gone(&describe(&other))),
        }
    }
}

impl Container {
    /// The container's name, which is its host name inside.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// PID of the first process inside, as seen from outside.
    pub fn pid(&self) -> rustix::process::Pid {
        self.init.pid
    }

    /// Whether its first process runs, and so the container is there.
    pub fn is_running(&self) -> bool {
        self.init.is_running()
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// A netlink socket inside.
    pub fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// Asks the agent inside for something.
    pub fn request(&mut self, request: &Request) -> Result<(), LabError> {
        let mut line = serde_json::to_vec(request).expect("requests are plain data");
        line.push(b'\n');
        self.agent.write_all(&line).map_err(|error| self.gone(&error.to_string()))
    }

    /// Waits until the role that was started has its ports open; what was agreed on for them.
    pub fn wait_until_ready(&mut self, cancel: &Cancel) -> Result<Vec<Agreement>, LabError> {
        match self.event(cancel, PATIENCE)? {
            Event::Ready(agreements) => Ok(agreements),
            other => Err(self.gone(&describe(&other))),
        }
    }

    /// Waits for the report of the role that was started.
    pub fn wait_until_done(
        &mut self,
        cancel: &Cancel,
        patience: Duration,
    ) -> Result<Report, LabError> {
        match self.event(cancel, patience)? {
            Event::Done(report) => {
                self.check_engine()?;
                Ok(*report)
            }
            other => Err(self.gone(&describe(&other))),
        }
    }

    fn event(&mut self, cancel: &Cancel, patience: Duration) -> Result<Event, LabError> {
        let deadline = Instant::now() + patience;
        let mut chunk = [0; 1 << 16];
        // A line may come in many pieces: look at each byte once.
        let mut looked_at = 0;
        loop {
            let fresh = &self.received[looked_at..];
            if let Some(at) = fresh.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=looked_at + at).collect();
                return serde_json::from_slice(&line)
                    .map_err(|error| self.gone(&error.to_string()));
            }
            looked_at = self.received.len();
            cancel.check()?;
            if Instant::now() > deadline {
                return Err(self.gone(&format!("said nothing for {} s", patience.as_secs())));
            }
            match self.agent.read(&mut chunk) {
                Ok(0) => return Err(self.gone("its first process ended")),
                Ok(len) => self.received.extend_from_slice(&chunk[..len]),
                Err(error) if is_timeout(&error) => self.check_engine()?,
                Err(error) => return Err(self.gone(&error.to_string())),
            }
        }
    }

    /// What its agent, and with it its role, holds.
    pub fn holdings(&self) -> Result<Holdings, LabError> {
        let doing = LabError::doing(format!("what container {} holds", self.name));
        Holdings::of(self.init.pid).map_err(doing)
    }

    /// Fails where the engine's process has ended: the container may live on, but nobody is in charge.
    fn check_engine(&mut self) -> Result<(), LabError> {
        match self.engine.as_mut().and_then(Process::end) {
            Some(end) => Err(self.gone(&format!("what runs it {end}"))),
            None => Ok(()),
        }
    }

    fn gone(&self, what: &str) -> LabError {
        LabError::Container { container: self.name.clone(), what: what.to_owned() }
    }

    pub(crate) fn init(&self) -> &Init {
        &self.init
    }

    /// Whether an engine made it.
    pub(crate) fn is_by_engine(&self) -> bool {
        self.engine.is_some()
    }

    pub(crate) fn kill(&self) {
        self.init.kill();
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn describe(event: &Event) -> String {
    match event {
        Event::Failed { message } => message.clone(),
        other => format!("unexpected answer {other:?}"),
    }
}

/// Sets up the container around the calling process, which must be the first one of its
/// namespaces: host name, private mounts, its own `/proc` and `/sys`, and no IPv6, whose routers
/// and listeners would send frames that nobody asked for.
pub fn enter(name: &str) -> Result<(), LabError> {
    if std::process::id() != 1 {
        // Outside a container this would turn the machine itself inside out.
        let what = "only dray itself starts this, as the first process of a container".to_owned();
        return Err(LabError::Container { container: name.to_owned(), what });
    }
    let doing =
        |what: &'static str| move |errno: rustix::io::Errno| LabError::doing(what)(errno.into());
    rustix::system::sethostname(name.as_bytes()).map_err(doing("sethostname"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    match mount_change("/", private) {
        // In a chroot the root is no mount point; what we mount on is enough.
        Err(rustix::io::Errno::INVAL) => ["/proc", "/sys"]
            .into_iter()
            .try_for_each(|folder| mount_change(folder, private))
            .map_err(doing("private /proc and /sys"))?,
        result => result.map_err(doing("private mounts"))?,
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(doing("mount /proc"))?;
    mount("sysfs", "/sys", "sysfs", flags, None).map_err(doing("mount /sys"))?;
    keep_quiet().map_err(LabError::doing("no traffic of the kernel's own"))?;
    // Container engines leave processes to the first one, which waits for none: they vanish by
    // themselves.
    ignore_children();
    Ok(())
}

/// Has the kernel send nothing of its own accord in this network namespace: no IPv6, whose addresses
/// announce themselves, and no reports of the groups that bridges join. Only packets of ours shall be
/// counted.
fn keep_quiet() -> io::Result<()> {
    let net = Path::new("/proc/sys/net");
    let conf = net.join("ipv6/conf");
    // What the kernel is built without needs no switching off.
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

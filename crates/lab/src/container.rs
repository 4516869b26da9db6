//! A container, seen from outside ([`Container`]) and from inside ([`enter`]).

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use dray_traffic::agent::{Event, Request};
use dray_traffic::{Agreement, Report};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::namespace::{Init, NetworkNamespace, spawn};
use crate::netlink::Netlink;
use crate::{Cancel, LabError};

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

/// A running container. It dies with this value, and with the thread that made it.
pub struct Container {
    name: String,
    init: Init,
    namespace: NetworkNamespace,
    netlink: Netlink,
    requests: UnixStream,
    received: Vec<u8>,
    is_up: bool,
    pub(crate) interfaces: usize,
}

impl Container {
    /// Starts a container; `program` is the `dray` that runs inside. It is not
    /// [up](Self::wait_until_up) yet.
    pub(crate) fn start(program: &Path, name: &str, cpus: &[usize]) -> Result<Self, LabError> {
        let doing = |what: &str| LabError::doing(format!("container {name}: {what}"));
        let (ours, theirs) = UnixStream::pair().map_err(doing("socket pair"))?;
        ours.set_read_timeout(Some(Cancel::INTERVAL)).map_err(doing("socket time-out"))?;
        let argument = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let argv = [program.as_os_str().as_bytes(), INSIDE_COMMAND.as_bytes(), name.as_bytes()]
            .map(argument)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(doing("command"))?;
        let init = spawn(&argv, theirs.as_fd()).map_err(doing("clone3"))?;
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(Some(init.pid), &set)
            .map_err(|errno| doing("CPU affinity")(errno.into()))?;
        let namespace = init.network().map_err(doing("network namespace"))?;
        let netlink = Netlink::open(&namespace).map_err(doing("netlink"))?;
        netlink.set_up(LOOPBACK).map_err(doing("loopback"))?;
        Ok(Self {
            name: name.to_owned(),
            init,
            namespace,
            netlink,
            requests: ours,
            received: Vec::new(),
            is_up: false,
            interfaces: 0,
        })
    }

    /// The container's name, which is its host name inside.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// PID of the first process inside, as seen from outside.
    pub fn pid(&self) -> rustix::process::Pid {
        self.init.pid
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
        self.requests.write_all(&line).map_err(|error| self.gone(&error.to_string()))
    }

    /// Waits until the container's inside is set up.
    pub(crate) fn wait_until_up(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        if !self.is_up {
            match self.event(cancel, PATIENCE)? {
                Event::Up => self.is_up = true,
                other => return Err(self.gone(&describe(&other))),
            }
        }
        Ok(())
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
            Event::Done(report) => Ok(*report),
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
            match self.requests.read(&mut chunk) {
                Ok(0) => return Err(self.gone("its first process ended")),
                Ok(len) => self.received.extend_from_slice(&chunk[..len]),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(self.gone(&error.to_string())),
            }
        }
    }

    fn gone(&self, what: &str) -> LabError {
        LabError::Container { container: self.name.clone(), what: what.to_owned() }
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
    for scope in ["all", "default"] {
        // Without IPv6 in the kernel there is nothing to switch off.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
    Ok(())
}

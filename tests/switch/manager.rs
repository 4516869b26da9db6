//! A service manager that keeps descriptors of the switch that it runs, as systemd does.

use std::io::{BufRead, BufReader, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use dray_port::Port;
use dray_switch::PortStatus;
use dray_switch::client::Client;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use tempfile::TempDir;

use crate::common::{self, Started, eventually, listens};
use crate::ends;

/// Number of frames of a batch: as many may be lost when the switch is killed.
pub(crate) const BATCH: u64 = 256;

/// Named descriptors that the manager keeps.
type Store = Mutex<Vec<(String, OwnedFd)>>;

/// A service manager with a store of descriptors, and the switch that it runs.
pub(crate) struct Manager {
    pub(crate) folder: TempDir,
    arguments: Vec<String>,
    /// Number of ports that the switch records.
    pub(crate) ports: usize,
    notify: PathBuf,
    pub(crate) told: Arc<Told>,
    reads: Option<JoinHandle<()>>,
    process: Option<Started>,
    /// Output of the process.
    said: Arc<Mutex<String>>,
}

#[derive(Default)]
pub(crate) struct Told {
    store: Store,
    /// True once the switch has said that it is ready.
    ready: AtomicBool,
    /// Number of messages, and of those of the manager to itself.
    all: AtomicU64,
    own: AtomicU64,
    stop: AtomicBool,
    /// True while it reads no messages.
    pub(crate) is_busy: AtomicBool,
}

impl Told {
    pub(crate) fn store(&self) -> MutexGuard<'_, Vec<(String, OwnedFd)>> {
        self.store.lock().unwrap()
    }

    /// Handles messages as systemd does: descriptors of the same name are replaced by none, and those
    /// that signal a hang-up are dropped, unless the service asks for them to stay.
    fn serve(&self, socket: &UnixDatagram) {
        while !self.stop.load(Relaxed) {
            if self.is_busy.load(Relaxed) {
                sleep(Duration::from_millis(1));
                continue;
            }
            let mut bytes = [0; 512];
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(16))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let length = recvmsg(socket, &mut parts, &mut ancillary, flags).unwrap().bytes;
            self.all.fetch_add(1, Relaxed);
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            let value = |name| text.lines().find_map(|line| line.strip_prefix(name));
            let mut descriptors = Vec::new();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    descriptors.extend(came);
                }
            }
            let name = value("FDNAME=").unwrap_or("stored").to_owned();
            if value("FDSTORE=").is_some() {
                let stays = |descriptor: &OwnedFd| {
                    let mut fds = [PollFd::new(descriptor, PollFlags::empty())];
                    value("FDPOLL=") == Some("0")
                        || poll(&mut fds, Some(&Timespec::default())).unwrap() == 0
                };
                let stored = descriptors.into_iter().filter(stays);
                self.store().extend(stored.map(|descriptor| (name.clone(), descriptor)));
            } else if value("FDSTOREREMOVE=").is_some() {
                self.store().retain(|(other, _)| *other != name);
            } else if value("READY=").is_some() {
                self.ready.store(true, Relaxed);
            } else if value("OWN=").is_some() {
                self.own.fetch_add(1, Relaxed);
            }
        }
    }
}

impl Manager {
    /// Runs a switch with `options` and `ports`, in which `DIR` is a folder of the test.
    pub(crate) fn new(options: &[&str], ports: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().to_str().expect("text");
        let given = options.iter().chain(ports).map(|text| text.replace("DIR", at));
        let arguments = given.chain(["--control".to_owned(), format!("{at}/control")]).collect();
        let notify = folder.path().join("notify");
        let (told, socket) = (Arc::<Told>::default(), UnixDatagram::bind(&notify).unwrap());
        let telling = told.clone();
        let reads = std::thread::spawn(move || telling.serve(&socket));
        let (reads, ports) = (Some(reads), ports.len());
        let (process, said) = (None, Arc::default());
        let mut manager = Self { folder, arguments, ports, notify, told, reads, process, said };
        manager.start();
        manager.wait();
        manager
    }

    /// Starts the switch with all that is in the store.
    pub(crate) fn start(&mut self) {
        self.told.ready.store(false, Relaxed);
        let stored: Vec<(String, OwnedFd)> =
            self.told.store().iter().map(|(name, fd)| (name.clone(), high(fd))).collect();
        let names: Vec<_> = stored.iter().map(|(name, _)| name.as_str()).collect();
        let mut command = Command::new("sh");
        command.args(["-c", r#"LISTEN_PID=$$ exec "$0" "$@""#, common::DRAY, "switch"]);
        command.args(&self.arguments).env("NOTIFY_SOCKET", &self.notify);
        command.env("LISTEN_FDS", stored.len().to_string());
        command.env("LISTEN_FDNAMES", names.join(":"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let numbers: Vec<_> = stored.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
        let place = move || {
            for (to, from) in (3..).zip(&numbers) {
                // SAFETY: this is the child, which has nothing of its own at these numbers.
                if unsafe { libc::dup2(*from, to) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
        };
        // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
        unsafe { command.pre_exec(place) };
        let mut process = command.spawn().expect("dray starts");
        let (stderr, said) = (process.stderr.take().unwrap(), Arc::<Mutex<String>>::default());
        self.said = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                said.lock().unwrap().extend([&line, "\n"]);
            }
        });
        self.process = Some(Started(process));
    }

    /// Waits until the switch serves, and has recorded its state.
    pub(crate) fn wait(&self) {
        let is_ready = || self.told.ready.load(Relaxed) && listens(self.control());
        assert!(soon(is_ready), "the switch is ready");
        let is_complete = || self.told.store().len() == self.ports + 1;
        assert!(soon(is_complete), "{:?}", self.told.store());
    }

    /// Waits until the switch has recorded what peers have changed.
    pub(crate) fn settle(&self) {
        let is_quiet = || {
            let before = self.told.all.load(Relaxed);
            sleep(Duration::from_millis(300));
            self.told.all.load(Relaxed) == before
        };
        assert!(eventually(is_quiet));
    }

    /// Ends the switch by a signal; returns what it has said.
    pub(crate) fn end(&mut self, signal: Signal) -> String {
        let Started(process) = &mut self.process.take().expect("it runs");
        rustix::process::kill_process(Pid::from_child(process), signal).unwrap();
        let has_ended = soon(|| process.try_wait().unwrap().is_some());
        assert!(has_ended, "the switch ends by signal {signal:?}: {}", self.said());
        // systemd handles messages before the end of a process.
        let before = self.told.own.load(Relaxed);
        UnixDatagram::unbound().unwrap().send_to(b"OWN=1", &self.notify).unwrap();
        assert!(soon(|| self.told.own.load(Relaxed) > before));
        self.said()
    }

    /// Returns the number of the switch's process.
    pub(crate) fn process(&self) -> u32 {
        self.process.as_ref().expect("it runs").0.id()
    }

    /// Returns what the switch has said.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
        self.start();
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.control())
    }

    pub(crate) fn port(&self, name: &str) -> PortStatus {
        self.client().port(&name.parse().unwrap()).expect("a reply")
    }

    pub(crate) fn plug(&self, name: &str, keys: &str) -> Port {
        ends::plug(&self.folder.path().join(name), keys)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.process = None;
        self.told.stop.store(true, Relaxed);
        let _ = UnixDatagram::unbound().unwrap().send_to(b"OWN=1", &self.notify);
        let _ = self.reads.take().unwrap().join();
    }
}

/// Like [`eventually`], to the millisecond.
fn soon(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() && Instant::now() < deadline {
        sleep(Duration::from_micros(200));
    }
    done()
}

/// Returns a duplicate with a number that no other descriptor of a child has.
fn high(descriptor: &OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(descriptor, 1000).unwrap()
}

//! A service manager that keeps descriptors of the program that it runs, as systemd does.

use std::fs::File;
use std::io::{IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use dray_daemon::Channel;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use tempfile::TempDir;

use crate::common::{self, Started, eventually, listens};

/// Named descriptors that the manager keeps.
type Store = Mutex<Vec<(String, OwnedFd)>>;

/// A service manager with a store of descriptors, and the program that it runs.
pub(crate) struct Manager {
    pub(crate) folder: TempDir,
    arguments: Vec<String>,
    /// Number of pages that the program keeps.
    pub(crate) pages: usize,
    notify: PathBuf,
    pub(crate) notifications: Arc<Notifications>,
    reads: Option<JoinHandle<()>>,
    pub(crate) process: Option<Started>,
}

#[derive(Default)]
pub(crate) struct Notifications {
    store: Store,
    /// True once the program has said that it is ready.
    ready: AtomicBool,
    /// Number of messages, and of those of the manager to itself.
    all: AtomicU64,
    own: AtomicU64,
    stop: AtomicBool,
    /// True while it reads no messages.
    pub(crate) is_busy: AtomicBool,
}

impl Notifications {
    pub(crate) fn store(&self) -> MutexGuard<'_, Vec<(String, OwnedFd)>> {
        self.store.lock().unwrap()
    }

    /// Handles messages as systemd does: descriptors of the same name are replaced by none, and
    /// those that signal a hang-up are dropped, unless the service asks for them to stay.
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
    /// Runs `dray` with these arguments, in which `DIR` is the folder, until it keeps `pages`
    /// pages.
    pub(crate) fn run(folder: TempDir, pages: usize, arguments: &[&str]) -> Self {
        let at = folder.path().to_str().expect("text");
        let given = arguments.iter().map(|text| text.replace("DIR", at));
        let arguments = given.chain(["--control".to_owned(), format!("{at}/control")]).collect();
        let notify = folder.path().join("notify");
        let (notifications, socket) =
            (Arc::<Notifications>::default(), UnixDatagram::bind(&notify).unwrap());
        let received = notifications.clone();
        let reads = Some(std::thread::spawn(move || received.serve(&socket)));
        let mut manager =
            Self { folder, arguments, pages, notify, notifications, reads, process: None };
        manager.start();
        manager.wait();
        manager
    }

    /// Starts the program with all that is in the store.
    pub(crate) fn start(&mut self) {
        self.notifications.ready.store(false, Relaxed);
        let stored: Vec<(String, OwnedFd)> =
            self.notifications.store().iter().map(|(name, fd)| (name.clone(), high(fd))).collect();
        let names: Vec<_> = stored.iter().map(|(name, _)| name.as_str()).collect();
        let mut command = Command::new("sh");
        command.args(["-c", r#"LISTEN_PID=$$ exec "$0" "$@""#, common::DRAY]);
        command.args(&self.arguments).env("NOTIFY_SOCKET", &self.notify);
        command.env("LISTEN_FDS", stored.len().to_string());
        command.env("LISTEN_FDNAMES", names.join(":"));
        // A file has all that the program wrote before it was ready; from a pipe, a thread of this
        // process would have to read it first.
        let log = File::create(self.log()).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
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
        self.process = Some(Started(command.spawn().expect("dray starts")));
    }

    /// Waits until the program serves, and has recorded its state.
    pub(crate) fn wait(&self) {
        let is_ready = || self.notifications.ready.load(Relaxed) && listens(self.control());
        assert!(soon(is_ready), "ready: {}", self.said());
        let is_complete = || self.notifications.store().len() == self.pages;
        assert!(soon(is_complete), "{:?}", self.notifications.store());
    }

    /// Waits until the program has recorded what peers have changed.
    pub(crate) fn settle(&self) {
        let is_quiet = || {
            let before = self.notifications.all.load(Relaxed);
            sleep(Duration::from_millis(300));
            self.notifications.all.load(Relaxed) == before
        };
        assert!(eventually(is_quiet));
    }

    /// Ends the program by a signal; returns what it has said.
    pub(crate) fn end(&mut self, signal: Signal) -> String {
        let Started(process) = &mut self.process.take().expect("it runs");
        rustix::process::kill_process(Pid::from_child(process), signal).unwrap();
        let has_ended = soon(|| process.try_wait().unwrap().is_some());
        assert!(has_ended, "it ends by signal {signal:?}: {}", self.said());
        // systemd handles messages before the end of a process.
        let before = self.notifications.own.load(Relaxed);
        UnixDatagram::unbound().unwrap().send_to(b"OWN=1", &self.notify).unwrap();
        assert!(soon(|| self.notifications.own.load(Relaxed) > before));
        self.said()
    }

    /// Restarts the program ten times; its log must have no warnings and errors.
    pub(crate) fn restart_ten_times(&mut self) {
        for _ in 0..10 {
            let log = self.end(Signal::TERM);
            assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
            self.start();
            self.wait();
            sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of the program's process.
    pub(crate) fn process(&self) -> u32 {
        self.process.as_ref().expect("it runs").0.id()
    }

    /// Returns what the program has said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).expect("text")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
        self.start();
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.arguments.last().expect("--control PATH").into()
    }

    /// Gives the program another control socket from its next start on.
    pub(crate) fn move_control(&mut self, name: &str) {
        let path = self.folder.path().join(name).to_str().expect("text").to_owned();
        *self.arguments.last_mut().expect("--control PATH") = path;
    }

    /// Kills the program, changes what is kept of it, and starts it again. Returns what it says
    /// until it has recorded its state.
    pub(crate) fn spoil(&mut self, spoil: impl FnOnce(&mut Vec<Page>)) -> String {
        self.end(Signal::KILL);
        let stored = std::mem::take(&mut *self.notifications.store());
        let mut pages: Vec<_> = stored.into_iter().map(|(_, fd)| read_page(fd)).collect();
        spoil(&mut pages);
        let mut stored: Vec<_> = pages.iter().map(write_page).collect();
        if stored.is_empty() {
            stored.push(null());
        }
        drop(pages);
        let names = (0..).map(|number| format!("dray-{number}"));
        *self.notifications.store() = names.zip(stored).collect();
        self.start();
        self.wait();
        self.said()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.process = None;
        self.notifications.stop.store(true, Relaxed);
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

/// A page in the store: its text, and its descriptors.
pub(crate) type Page = (String, Vec<OwnedFd>);

/// Takes a page out of the store.
fn read_page(descriptor: OwnedFd) -> Page {
    let channel = Channel::of(descriptor).unwrap();
    let (_, mut descriptors) = channel.receive(Duration::from_secs(1)).unwrap();
    let mut file = File::from(descriptors.remove(0));
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    (text, descriptors)
}

/// Makes what a program would have stored.
fn write_page((text, descriptors): &Page) -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let (channel, waits) = Channel::pair().unwrap();
    let file = [file.as_fd()].into_iter();
    let descriptors: Vec<_> = file.chain(descriptors.iter().map(AsFd::as_fd)).collect();
    channel.send(&[], &descriptors, Duration::from_secs(1)).unwrap();
    waits
}

pub(crate) fn null() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

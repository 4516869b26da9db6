//! DPDK's testpmd as a switch between vhost-user sockets, as the target of violations.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::neighbours::Neighbours;
use super::partner::Partner;
use super::{HostileDriver, Violation};

/// Time after which a hostile peer that is still connected counts as ignored.
const WATCHED: Duration = Duration::from_secs(2);

/// Time within which the hostile peer's port has to accept another driver.
const SUCCESSOR: Duration = Duration::from_secs(5);

/// A running testpmd: port 0 is the hostile peer's and paired with port 1; ports 2 and 3 exchange
/// frames.
pub struct Testpmd {
    process: Child,
    folder: TempDir,
    partner: Partner,
    neighbours: Option<Neighbours>,
}

pub fn is_there() -> bool {
    Command::new("dpdk-testpmd").arg("--version").output().is_ok()
}

impl Testpmd {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |number| folder.path().join(format!("{number}"));
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-pci", "--no-huge", "-m", "256", "--no-shconf", "--no-telemetry"]);
        for number in 0..4 {
            let path = path(number);
            command.arg("--vdev").arg(format!("net_vhost{number},iface={}", path.display()));
        }
        command.args(["--", "--forward-mode=io", "--auto-start", "--no-mlockall"]);
        command.args(["--total-num-mbufs=32768", "-i"]);
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        // testpmd exits when its input ends.
        command.stdin(Stdio::piped()).stderr(log.try_clone().expect("a file")).stdout(log);
        let process = command.spawn().expect("dpdk-testpmd");
        let partner = Partner::open(&path(1));
        let neighbours = Some(Neighbours::start(&path(2), &path(3)));
        let started = Self { process, partner, neighbours, folder };
        let log = || std::fs::read_to_string(started.folder.path().join("log"));
        assert!(started.neighbours().go_on(), "testpmd does not forward: {:?}", log());
        started
    }

    fn neighbours(&self) -> &Neighbours {
        self.neighbours.as_ref().expect("running neighbours")
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("our own child")
    }

    /// Makes a hostile peer commit `violation`. Returns the outcome, and true if this testpmd can
    /// still be used.
    pub fn commit(&mut self, violation: &Violation) -> (String, bool) {
        let path: PathBuf = self.folder.path().join("0");
        let mut peer = HostileDriver::connect(&path);
        let start = Instant::now();
        let received = self.neighbours().received();
        let partner = &mut self.partner;
        std::thread::scope(|scope| {
            let committing = scope.spawn(|| (violation.commit)(&mut peer));
            while !committing.is_finished() {
                partner.play();
                std::thread::sleep(Duration::from_millis(1));
            }
            // A reply that the hostile peer waits for may never come.
            let _ = committing.join();
        });
        let committed = Instant::now();
        while committed.elapsed() < WATCHED && !peer.is_hung_up() && self.ended().is_none() {
            self.partner.play();
            std::thread::sleep(Duration::from_millis(1));
        }
        let hung_up = peer.is_hung_up();
        // A fault may be about to end the process.
        std::thread::sleep(Duration::from_millis(100));
        if let Some(status) = self.ended() {
            return (crashed(status), false);
        }
        if !self.goes_on() {
            let during = self.neighbours().received() - received;
            let after = start.elapsed().as_secs();
            return (format!("**hung**: {during} frames of the neighbours in {after} s"), false);
        }
        let outcome = if hung_up { "disconnected" } else { "ignored" };
        drop(peer);
        let successor = self.partner.meets(&path, SUCCESSOR);
        match self.ended() {
            Some(status) => (format!("{outcome}; then {}", crashed(status)), false),
            None if !self.goes_on() => (format!("{outcome}; then **hung**"), false),
            None if !successor => (format!("{outcome}; **port dead**"), false),
            None => (outcome.to_owned(), true),
        }
    }

    /// Returns true if the neighbours' frames arrive.
    fn goes_on(&self) -> bool {
        let (start, before) = (Instant::now(), self.neighbours().received());
        while start.elapsed() < WATCHED {
            if self.neighbours().received() > before {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

fn crashed(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => {
            let name = rustix::process::Signal::from_named_raw(signal);
            let name = name.map_or(signal.to_string(), |name| format!("{name:?}"));
            format!("**crashed**: {}", name.replace("Signal::", "SIG"))
        }
        None => format!("**ended**: {status}"),
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(neighbours) = self.neighbours.take() {
            let _ = neighbours.finish();
        }
    }
}

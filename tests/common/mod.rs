//! Shared helpers of the end-to-end tests.
#![allow(
    dead_code,
    unused_macros,
    unreachable_pub,
    reason = "each test program uses a part of this"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_lab::peer::SwitchKind;
use dray_results::Measured;
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

pub mod endpoints;
pub mod guests;
pub mod hosts;
pub mod kernels;
pub mod manager;
pub mod stream;
pub mod takeover;
pub mod veths;

pub const DRAY: &str = env!("CARGO_BIN_EXE_dray");

/// Lets one test of this program run at a time: the tests look at processes and namespaces of the
/// whole machine, and share its CPUs.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    static CLEAN: Once = Once::new();
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // A run that was killed may have left control groups. Their names have the number of its PID
    // namespace, which this run's can have now: the next lab would remove them during a test.
    CLEAN.call_once(|| {
        if has_root().is_ok() {
            success(&["lab", "clean"]);
        }
    });
    guard
}

/// Returns from the calling test, counted as skipped, if the machine lacks something. Where nothing
/// may be skipped (`CI=true`), it fails instead.
macro_rules! require_root {
    () => {
        if let Err(why) = $crate::common::has_root() {
            $crate::common::skip(&why);
            return;
        }
    };
}

/// Like [`require_root`], if a third-party program is not installed either.
#[allow(unused_macros, reason = "each test program uses a part of this")]
macro_rules! require {
    ($($kind:expr),*) => {
        require_root!();
        $(if let Err(why) = $kind.find() {
            $crate::common::skip(&why);
            return;
        })*
    };
}

pub fn has_root() -> Result<(), String> {
    dray_lab::NetworkNamespace::scratch()
        .map(drop)
        .map_err(|error| format!("making a network namespace needs root: {error}"))
}

/// Returns the frames whose fate is known, which must be as many as were sent: on a busy machine a
/// receiver may leave frames in its sockets.
pub fn accounted(measured: &Measured) -> u64 {
    measured.received + measured.lost + measured.corrupt + measured.queued
}

pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI skips nothing, but: {why}");
    note_skip(why);
}

/// Counts the calling test as skipped, even where nothing else may be skipped: it needs the source
/// of a program, which the user may not have.
pub fn note_skip(why: &str) {
    // The test harness names each thread after its test.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("SKIPPED {test}: {why}");
    if let Ok(path) = std::env::var("DRAY_SKIPPED") {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| writeln!(file, "{test}: {why}")).expect("the list of skips");
    }
}

/// A process that ends with its test, whether the test succeeds or fails.
pub struct Started(pub Child);

impl Drop for Started {
    fn drop(&mut self) {
        // The test may have killed it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns true if the kernel or the machine may lack what a link needs. Such a link is tested in a
/// virtual machine.
pub fn may_lack(link: &str) -> bool {
    let kinds = ["ipvlan/", "netkit/", "sriov", "geneve", "gre", "ipip", "wireguard"];
    let ovs = ["ovs/kernel", "ovs-vxlan/kernel"];
    link.contains("/ipvlan")
        || ovs.contains(&link)
        || kinds.iter().any(|kind| link.starts_with(kind))
}

/// Returns true if a link needs Open vSwitch and it is not installed. Tests of the group `dpdk`,
/// which installs it, cover such a link.
pub fn lacks_ovs(link: &str) -> bool {
    link.starts_with("ovs") && SwitchKind::Ovs.find().is_err()
}

/// Waits until `done` returns true. Returns false after half a minute, which is far longer than
/// anything takes on a busy machine.
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        sleep(Duration::from_millis(10));
    }
    false
}

/// Returns true if a process accepts connections at a socket. The file alone appears earlier.
pub fn listens(socket: impl AsRef<Path>) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Returns true if a switch or a user plane function answers at its control socket: its ports are
/// open, and its data threads run. It listens earlier, and what is sent to a `raw:` port meanwhile
/// is lost.
pub fn serves(control: impl AsRef<Path>) -> bool {
    dray_daemon::Client::new(control.as_ref(), "dray").health(false).is_ok()
}

/// Returns a command that runs `dray` with the default action of every signal that tests send. A
/// child inherits ignored signals: SIGHUP from nohup(1), SIGINT from a script's background job.
///
/// The program gets SIGTERM when its test ends, for example because it fails or the test program is
/// killed. This is so only if the test's own thread starts it: the thread that enters a network
/// namespace to start a program ends at once.
pub fn command() -> Command {
    let mut command = Command::new(DRAY);
    // The test harness names each thread after its test; others have no name.
    let is_test = std::thread::current().name().is_some();
    // SAFETY: the call reads this thread's identifier.
    let caller = unsafe { libc::pthread_self() };
    let test = getpid();
    let child = move || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            // SAFETY: SIG_DFL runs no code of this program.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: as above; after fork(2) it is that of the thread that called it.
        if is_test && unsafe { libc::pthread_self() } == caller {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // A parent that died before that call sends no signal.
            if getppid() != Some(test) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(child) };
    command
}

/// Sends a signal to a running child.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a running process");
}

/// Runs `dray` until it exits.
pub fn dray(arguments: &[&str]) -> Output {
    command().args(arguments).output().expect("dray starts")
}

/// Returns the standard output of a run, which must succeed.
pub fn success(arguments: &[&str]) -> String {
    let output = dray(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dray {}: {stderr}", arguments.join(" "));
    String::from_utf8(output.stdout).expect("text")
}

/// Fails if results do not match the schema. Returns the schema's validator.
pub fn assert_schema(json: &serde_json::Value) -> jsonschema::Validator {
    let schema =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/result.schema.json"));
    let schema: serde_json::Value = serde_json::from_str(&schema.unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    validator
}

/// Returns true if a role has started, which it does once its ports are open.
pub fn runs_role(process: &Child) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id()));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "role\n"))
}

/// Traces of a lab that are visible on the whole machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Traces {
    network_namespaces: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    control_groups: BTreeSet<String>,
    processes: BTreeSet<String>,
}

impl Traces {
    pub fn now() -> Self {
        let mut network_namespaces = BTreeSet::new();
        let mut processes = BTreeSet::new();
        for process in fs::read_dir("/proc").expect("/proc").flatten() {
            let path = process.path();
            // Ignore a process that ends meanwhile.
            if let Ok(link) = fs::read_link(path.join("ns/net")) {
                network_namespaces.insert(link.display().to_string());
            }
            if let Ok(exe) = fs::read_link(path.join("exe"))
                && exe == Path::new(DRAY)
            {
                processes.insert(path.display().to_string());
            }
        }
        let mut control_groups = BTreeSet::new();
        groups_of_labs(Path::new("/sys/fs/cgroup"), 0, &mut control_groups);
        let interfaces = fs::read_dir("/sys/class/net").expect("/sys/class/net").flatten();
        Self {
            network_namespaces,
            interfaces: interfaces.map(|i| i.file_name().to_string_lossy().into_owned()).collect(),
            control_groups,
            processes,
        }
    }

    pub fn control_groups(&self) -> &BTreeSet<String> {
        &self.control_groups
    }

    /// Returns what came (`+`) and went (`-`) on this machine since then, if anything did.
    pub fn changes(&self) -> Vec<String> {
        let now = Self::now();
        let mut changes = Vec::new();
        for (before, after) in [
            (&self.network_namespaces, &now.network_namespaces),
            (&self.interfaces, &now.interfaces),
            (&self.control_groups, &now.control_groups),
            (&self.processes, &now.processes),
        ] {
            changes.extend(after.difference(before).map(|it| format!("+{it}")));
            changes.extend(before.difference(after).map(|it| format!("-{it}")));
        }
        changes
    }

    /// Fails if anything has changed on this machine: other programs that are at work there count,
    /// too.
    #[track_caller]
    pub fn assert_unchanged(&self) {
        let changes = self.changes();
        assert!(changes.is_empty(), "changed since the test began: {changes:?}");
    }

    /// Compares everything but control groups.
    pub fn is_alive_as(&self, other: &Self) -> bool {
        self.network_namespaces == other.network_namespaces
            && self.interfaces == other.interfaces
            && self.processes == other.processes
    }
}

/// Collects the control groups of labs in any hierarchy whose owner has this process's PID
/// namespace: other programs' tests may run at the same time in theirs. A lab's name begins with
/// the namespace's number.
fn groups_of_labs(folder: &Path, depth: usize, found: &mut BTreeSet<String>) {
    let namespace = fs::read_link("/proc/self/ns/pid").expect("/proc/self/ns/pid");
    let own = namespace.to_string_lossy().replace("pid:[", "").replace(']', "-");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let lab = path.components().skip_while(|part| part.as_os_str() != "dray").nth(1);
        let foreign = lab.is_some_and(|lab| !lab.as_os_str().to_string_lossy().starts_with(&own));
        if path.is_dir() && !foreign && (lab.is_some() || depth < 2) {
            if lab.is_some() {
                found.insert(path.display().to_string());
            }
            groups_of_labs(&path, depth + 1, found);
        }
    }
}

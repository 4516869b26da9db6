//! Privileges that a running switch or user plane function drops, and how it ends when a thread
//! dies.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::common::{self, Started, alone, eventually};
use dray_traffic::Report;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use tempfile::TempDir;

/// A datagram of 64 bytes: one frame for a Unix datagram port.
const FRAME: [u8; 64] = [2; 64];

const UPF_CONFIG: &str = r#"
n3 = { mac = "02:00:00:00:03:01", addresses = ["10.0.3.1"] }
n6 = { mac = "02:00:00:00:06:01", addresses = ["10.0.6.1"] }
"#;

fn start(command: &mut Command) -> Started {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Started(command.spawn().expect("dray starts"))
}

/// Waits for the process to end. Returns its exit status and its error output.
fn end(mut child: Started) -> (Option<i32>, String) {
    let mut said = String::new();
    child.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    (child.0.wait().expect("an exit status").code(), said)
}

/// Terminates `child` with SIGTERM.
fn terminate(child: Started) -> (Option<i32>, String) {
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a running process");
    end(child)
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(folder.path(), everybody).expect("our own file");
    folder
}

fn at(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("text").to_owned()
}

/// Returns true if the process has ended and was not waited for.
fn has_ended(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()));
    stat.is_ok_and(|stat| stat.contains(") Z "))
}

/// Sends frames to the datagram port at `path` until `done` returns true.
fn send_frames(path: &str, mut done: impl FnMut() -> bool) {
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.set_nonblocking(true).expect("our own file");
    assert!(eventually(|| {
        let _ = socket.send_to(&FRAME, path);
        done()
    }));
}

/// Starts `command`, which panics at the first frame that arrives at the datagram port at `port`.
/// Returns the reply to clients of the control socket, the exit status and the error output.
fn death(command: &mut Command, port: &str, ask: &[&str]) -> (String, Option<i32>, String) {
    let child = start(command);
    let mut printed = String::new();
    send_frames(port, || {
        let answer = common::command().args(ask).output().expect("dray starts");
        printed = String::from_utf8_lossy(&answer.stderr).into_owned();
        printed.contains("about to end") || has_ended(&child.0)
    });
    let (status, stderr) = end(child);
    (printed, status, stderr)
}

#[test]
fn dead_worker_ends_the_switch_with_a_reason() {
    let _alone = alone();
    let folder = folder();
    let (control, port) = (at(&folder, "control"), at(&folder, "a"));
    let mut command = common::command();
    command.args(["switch", "--control", &control]);
    command.args(["--port", &format!("a=impair:panic=1:unix:{port}"), "--port", "b=null:"]);
    let (printed, status, stderr) =
        death(&mut command, &port, &["switch", "ports", "--control", &control]);
    assert!(printed.contains("about to end: thread dray-worker-"), "{printed}");
    assert_eq!(status, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("dray: thread dray-worker-") && last.contains("panicked at"),
        "{last}"
    );
    assert!(last.contains("frame 1: panic planned with impair:"), "{last}");
}

#[test]
fn dead_direction_ends_the_user_plane_function_with_a_reason() {
    let _alone = alone();
    let folder = folder();
    let (control, port, config) = (at(&folder, "control"), at(&folder, "a"), at(&folder, "upf"));
    fs::write(&config, UPF_CONFIG).expect("a file");
    let mut command = common::command();
    command.args(["upf", "--control", &control, "--config", &config]);
    command.args(["--n3", "null:", "--n6", &format!("impair:panic=1:unix:{port}")]);
    let (printed, status, stderr) =
        death(&mut command, &port, &["upf", "status", "--control", &control]);
    assert!(printed.contains("about to end: thread upf"), "{printed}");
    assert_eq!(status, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("dray: thread upf") && last.contains("panicked at"), "{last}");
}

#[test]
fn dead_role_ends_the_program_with_a_reason() {
    let _alone = alone();
    let folder = folder();
    let port = at(&folder, "a");
    let uri = format!("impair:panic=1:unix:{port}");
    let child = start(common::command().args(["receive", "--port", &uri]));
    send_frames(&port, || has_ended(&child.0));
    let (status, stderr) = end(child);
    assert_eq!(status, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("dray: thread role panicked at"), "{last}");
}

/// Returns the name of each thread of a process, and the privileges in its status.
fn privileges(process: u32) -> Vec<(String, BTreeMap<String, String>)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a running process");
    let status = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("status")).ok()?;
        let lines = text.lines().filter_map(|line| line.split_once(":\t"));
        let lines: BTreeMap<_, _> =
            lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect();
        Some((lines["Name"].clone(), lines))
    };
    tasks.flatten().filter_map(status).collect()
}

/// Checks that every thread has no capabilities and is behind a list of system calls; workers are
/// behind two.
fn assert_confined(process: u32, is_worker: impl Fn(&str) -> bool + Copy) {
    // A worker drops its remaining privileges itself, as its first action. Linux 5.9 and later
    // report the number of lists.
    let is_behind_two = |(name, status): &(String, BTreeMap<String, String>)| {
        !is_worker(name) || status.get("Seccomp_filters").is_none_or(|filters| filters == "2")
    };
    assert!(eventually(|| privileges(process).iter().all(is_behind_two)));
    let threads = privileges(process);
    for (name, status) in &threads {
        for key in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(status[key], "0000000000000000", "{name}: {key}");
        }
        assert_eq!(status["NoNewPrivs"], "1", "{name}");
        assert_eq!(status["Seccomp"], "2", "{name}");
    }
    assert!(threads.iter().any(|(name, _)| is_worker(name)), "{threads:?}");
}

#[test]
fn switch_and_upf_drop_privileges() {
    let _alone = alone();
    let folder = folder();
    let (control, config) = (at(&folder, "control"), at(&folder, "upf"));
    let [a, b] = ["a", "b"].map(|name| format!("vhost:{}", at(&folder, name)));
    fs::write(&config, UPF_CONFIG).expect("a file");
    let switch = ["switch", "--port", &format!("a={a}"), "--port", &format!("b={b}")];
    let upf = ["upf", "--n3", &a, "--n6", &b, "--config", &config];
    // The programs run as the user of the tests, and then as a user without any privilege.
    let users =
        if rustix::process::geteuid().is_root() { vec![None, Some(65534)] } else { vec![None] };
    for user in users {
        for arguments in [&switch[..], &upf] {
            let mut command = common::command();
            command.args(arguments).args(["--control", &control]);
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            let child = start(&mut command);
            let ask = if arguments[0] == "upf" { "status" } else { "ports" };
            let ask = [arguments[0], ask, "--control", &control];
            let answers = || common::dray(&ask).status.success();
            assert!(eventually(answers), "{arguments:?} as {user:?}");
            assert_confined(child.0.id(), |name| {
                name.starts_with("dray-worker") || name == "upf-uplink" || name == "upf-downlink"
                    || name == "upf"
            } && name != "dray");
            let (status, stderr) = terminate(child);
            assert_eq!(status, Some(0), "{stderr}");
            let left: Vec<_> =
                fs::read_dir(folder.path()).expect("our own file").flatten().collect();
            assert_eq!(left.len(), 1, "only the configuration is left: {left:?}");
        }
    }
}

#[test]
fn docker_plugin_keeps_three_capabilities() {
    require_root!();
    let _alone = alone();
    let folder = folder();
    let socket = at(&folder, "plugin.sock");
    let mut command = common::command();
    command.args(["docker-plugin", "--socket", &socket, "--state", &at(&folder, "state")]);
    let child = start(&mut command);
    assert!(eventually(|| common::listens(&socket)));
    // It accepts connections once it has its threads, which have what is kept.
    assert!(eventually(|| privileges(child.0.id()).len() > 1));
    let threads = privileges(child.0.id());
    for (name, status) in threads {
        // CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_BPF, of those that the test has.
        let kept = 1_u64 << 12 | 1 << 21 | 1 << 39;
        for key in ["CapEff", "CapPrm", "CapBnd"] {
            let has = u64::from_str_radix(&status[key], 16).expect("a number");
            assert!(has & (1 << 12) != 0 && has & !kept == 0, "{name}: {key}: {has:#x}");
        }
        for key in ["CapInh", "CapAmb"] {
            assert_eq!(status[key], "0000000000000000", "{name}: {key}");
        }
        assert_eq!(status["NoNewPrivs"], "1", "{name}");
    }
    assert_eq!(terminate(child).0, Some(0));
}

#[test]
fn sent_sigbus_ends_no_daemon() {
    let _alone = alone();
    let folder = folder();
    let (control, config) = (at(&folder, "control"), at(&folder, "upf"));
    fs::write(&config, UPF_CONFIG).expect("a file");
    let vhost = format!("a=vhost:{}", at(&folder, "a"));
    let plugin = ["docker-plugin", "--socket", &control, "--state", &at(&folder, "state")];
    let switch = ["switch", "--control", &control, &vhost];
    let upf = ["upf", "--control", &control, "--n3", "null:", "--n6", "null:", "--config", &config];
    for arguments in [&switch[..], &upf, &plugin] {
        if arguments[0] == "docker-plugin" && common::has_root().is_err() {
            continue;
        }
        let mut child = start(common::command().args(arguments));
        assert!(eventually(|| common::listens(&control)));
        // The first of them removes the handler that Rust programs begin with.
        for _ in 0..3 {
            common::signal(&child.0, rustix::process::Signal::BUS);
            thread::sleep(std::time::Duration::from_millis(100));
        }
        assert!(child.0.try_wait().expect("a child").is_none(), "{arguments:?} has ended");
        assert_eq!(terminate(child).0, Some(0), "{arguments:?}");
    }
}

#[test]
fn sandbox_allows_new_sockets_not_interfaces() {
    let _alone = alone();
    let (folder, outside) = (folder(), self::folder());
    let control = at(&folder, "control");
    let port = |name: &str, folder: &TempDir| format!("vhost:{}", at(folder, name));
    let mut command = common::command();
    command.args(["switch", "--control", &control, "--port", &format!("a={}", port("a", &folder))]);
    let child = start(&mut command);
    assert!(eventually(|| common::dray(&["switch", "ports", "--control", &control])
        .status
        .success()));
    let add = |name: &str, uri: &str| {
        let arguments = ["switch", "add-port", name, uri, "--control", &control];
        let output = common::dray(&arguments);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(add("b", &port("b", &folder)), (true, String::new()));
    let (added, said) = add("c", "raw:lo");
    assert!(!added && said.contains("raw:lo") && said.contains("--sandbox off"), "{said}");
    let (added, said) = add("d", &port("d", &outside));
    // For a process of root, the directory does not exist.
    let is_told = ["no such directory", "Permission denied"].iter().any(|what| said.contains(what));
    assert!(!added && is_told && said.contains("sandbox"), "{said}");
    let name = format!("dray-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).expect("a free name");
    let (added, said) = add("f", &format!("virtio:@{name}"));
    let is_scoped = dray_sandbox::landlock_version().is_ok_and(|version| version >= 6);
    assert!(added != is_scoped, "{said}");
    assert!(added || said.contains("abstract sockets of peers only"), "{said}");
    let (added, said) = add("e", "impair:panic=1:null:");
    assert!(!added && said.contains("only from its command line"), "{said}");
    // The switch continues as before.
    assert!(common::success(&["switch", "ports", "--control", &control]).contains("vhost:"));
    assert_eq!(terminate(child).0, Some(0));
}

/// Receives at a port for a second. Returns the number of frames.
fn received(uri: &str) -> u64 {
    let report = common::success(&["receive", "--json", "--duration", "1", "--port", uri]);
    match serde_json::from_str(&report).expect("JSON") {
        Report::Receive(report) => report.received,
        other => panic!("{other:?}"),
    }
}

#[test]
fn confined_switch_serves_reconnecting_peers() {
    let _alone = alone();
    let folder = folder();
    let (control, a, b) = (at(&folder, "control"), at(&folder, "a"), at(&folder, "b"));
    let (sender, back_end) = (at(&folder, "sender"), at(&folder, "back-end"));
    let mut command = common::command();
    command.args(["switch", "--control", &control, "--port", &format!("a=vhost:{a}")]);
    command.args(["--port", &format!("b=unix:{b}"), "--port", &format!("c=virtio:{back_end}")]);
    let child = start(&mut command);
    let _sender = {
        assert!(eventually(|| Path::new(&b).exists()));
        let port = format!("unix:{sender}?peer={b}");
        start(common::command().args(["send", "--rate", "1k", "--size", "64", "--port", &port]))
    };
    // The switch is the back end of one port and the driver of another; each has two peers in turn.
    for uri in [format!("virtio:{a}?hugepages=0"), format!("vhost:{back_end}")] {
        for _ in 0..2 {
            assert!(received(&uri) > 100, "{uri}");
        }
    }
    // Frames without a reply make the switch connect back to the sender of datagrams.
    let ping = ["ping", "--rate", "100", "--duration", "0.3", "--port"];
    common::dray(&[&ping[..], &[&format!("virtio:{a}?hugepages=0")]].concat());
    let (status, stderr) = terminate(child);
    assert_eq!(status, Some(0), "{stderr}");
}

/// Runs `work`, with programs that it starts, on a kernel where `call` fails.
pub(crate) fn without<T: Send>(
    call: libc::c_long,
    errno: u32,
    work: impl FnOnce() -> T + Send,
) -> T {
    let run = || {
        let arch = std::env::consts::ARCH.try_into().expect("known");
        let rules = BTreeMap::from([(call, Vec::new())]);
        let (others, this) = (SeccompAction::Allow, SeccompAction::Errno(errno));
        let filter = SeccompFilter::new(rules, others, this, arch).expect("a filter");
        let program: BpfProgram = filter.try_into().expect("a program");
        apply_filter(&program).expect("a kernel with filters");
        work()
    };
    // A filter applies to a thread and its children.
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

/// Starts the switch on a kernel where `call` fails.
fn start_without(call: libc::c_long, errno: u32, arguments: &[&str]) -> (Option<i32>, String) {
    without(call, errno, || end(start(common::command().args(arguments))))
}

/// As in a container with the capability SYS_ADMIN and the usual filter of its runtime, in a
/// chroot, and in an initramfs.
#[test]
fn refused_root_directory_hides_no_sockets() {
    require_root!();
    let _alone = alone();
    for (call, errno, part) in [
        (libc::SYS_pivot_root, libc::EPERM, "pivot_root: Operation not permitted"),
        (libc::SYS_pivot_root, libc::EINVAL, "pivot_root: Invalid argument"),
        (libc::SYS_mount, libc::EINVAL, "a change of mounts: Invalid argument"),
        (libc::SYS_unshare, libc::EPERM, "a mount namespace: Operation not permitted"),
    ] {
        for user in ["root", "4242:4243"] {
            let folder = folder();
            let control = at(&folder, "control");
            let arguments = ["switch", "--control", &control, "--user", user, "--port", "a=null:"];
            let (status, stderr) = without(call, errno as u32, || {
                let child = start(common::command().args(arguments));
                assert!(eventually(|| common::listens(&control)));
                let port = format!("vhost:{}", at(&folder, "b"));
                common::success(&["switch", "add-port", "b", &port, "--control", &control]);
                assert!(folder.path().join("b").exists(), "the socket is in another directory");
                // The switch's namespace has no further mounts.
                let mounts = |process: &str| {
                    let text = fs::read_to_string(format!("/proc/{process}/mountinfo"));
                    text.expect("a process").lines().count()
                };
                assert_eq!(mounts(&child.0.id().to_string()), mounts("self"));
                terminate(child)
            });
            assert_eq!(status, Some(0), "{stderr}");
            assert!(stderr.contains(part), "{stderr}");
        }
    }
}

#[test]
fn missing_sandbox_support_is_reported() {
    let _alone = alone();
    let folder = folder();
    let (control, port) = (at(&folder, "control"), format!("a=vhost:{}", at(&folder, "a")));
    let arguments = ["switch", "--control", &control, "--port", &port];
    let (enosys, einval) = (libc::ENOSYS as u32, libc::EINVAL as u32);
    for (call, errno, part) in [
        (libc::SYS_landlock_create_ruleset, enosys, "Landlock"),
        (libc::SYS_seccomp, einval, "seccomp"),
    ] {
        let (status, stderr) = start_without(call, errno, &arguments);
        assert_eq!(status, Some(1), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains(part) && stderr.contains("--sandbox off"), "{stderr}");
        assert_eq!(fs::read_dir(folder.path()).expect("our own file").count(), 0, "{part}");
    }
}

#[test]
fn disabled_sandbox_is_reported() {
    let _alone = alone();
    let folder = folder();
    let control = at(&folder, "control");
    let arguments = ["switch", "--sandbox", "off", "--control", &control, "--port", "a=null:"];
    let child = start(common::command().args(arguments));
    assert!(eventually(|| common::dray(&["switch", "ports", "--control", &control])
        .status
        .success()));
    assert!(privileges(child.0.id()).iter().all(|(_, status)| status["Seccomp"] == "0"));
    let (status, stderr) = terminate(child);
    assert_eq!(status, Some(0));
    assert!(stderr.contains("sandbox: off"), "{stderr}");
    let output = common::dray(&["switch", "--sandbox", "maybe", "--port", "a=null:"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("maybe") && stderr.contains("on, off"), "{stderr}");
}

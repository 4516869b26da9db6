//! Processes that take over from a running program, and those that try to.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dray_daemon::{Channel, Client};
use dray_lab::NetworkNamespace;

use crate::common::{self, Started, eventually, listens};

/// Much longer than a message takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A program that can be taken over: its subcommand, and the format of its messages.
pub(crate) struct Program(pub(crate) &'static str, pub(crate) u32);

impl Program {
    /// Returns a command that takes over from the program at `control`.
    pub(crate) fn takes_over(&self, control: &Path) -> Command {
        let mut command = common::command();
        command.args([self.0, "--take-over", "--control"]).arg(control);
        command
    }

    /// Starts `command`, which takes over from a process, again if one of them was late; returns
    /// once the latter has ended.
    pub(crate) fn replaced(
        &self,
        process: &mut Started,
        namespace: Option<&NetworkNamespace>,
        control: &Path,
        command: &mut Command,
    ) {
        let Started(before) = process;
        let mut next = start_in(namespace, command);
        let is_over = eventually(|| {
            if before.try_wait().expect("a child").is_some() {
                return true;
            }
            if let Some(status) = next.0.try_wait().expect("a child") {
                let said = said(&mut next.0);
                assert!(status.code() == Some(1) && was_late(&said), "{status}: {said}");
                next = start_in(namespace, command);
            }
            false
        });
        if !is_over {
            let _ = next.0.kill();
            panic!("it has not handed over; the next one said {:?}", said(&mut next.0));
        }
        assert_eq!(before.wait().expect("a child").code(), Some(0), "{}", said(before));
        *process = next;
        assert!(eventually(|| listens(control)), "the next one listens");
    }

    /// Asks for a take-over as a process of this format does.
    fn ask(&self, control: &Path, format: u32, theirs: impl AsFd) -> Result<(), String> {
        let client = Client::new(control, "dray");
        let body = format!(r#"{{"version":"9.9.9","format":{format}}}"#);
        client
            .json_with("POST", "/take-over", body.as_bytes(), &[theirs.as_fd()])
            .map(|_: serde_json::Value| ())
            .map_err(|error| error.to_string())
    }

    /// Begins a take-over, once none is under way.
    fn begin(&self, control: &Path) -> Channel {
        let mut begun = None;
        let begins = || {
            let (ours, theirs) = Channel::pair().unwrap();
            match self.ask(control, self.1, theirs) {
                Ok(()) => begun = Some(ours),
                Err(why) => assert!(why.contains("another one is under way"), "{why}"),
            }
            begun.is_some()
        };
        assert!(eventually(begins));
        begun.expect("it has begun")
    }

    /// Tries take-overs by a process of another format, by some that die or lie, and by another
    /// user.
    pub(crate) fn refuses_others(&self, control: &Path) {
        let (_, theirs) = Channel::pair().unwrap();
        let why = self.ask(control, 99, &theirs).unwrap_err();
        let version = env!("CARGO_PKG_VERSION");
        let formats = format!("formats {} and 99", self.1);
        let parts = [&format!("dray {version}")[..], "dray 9.9.9", &formats];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");

        // Ends at once, after the offer, and in the middle of the end; says something else.
        for messages in [&[][..], &[&b"ready"[..]], &[b"nonsense"], &[b"ready", b"nonsense"]] {
            let ours = self.begin(control);
            for message in messages {
                let (_, descriptors) = ours.receive(PATIENCE).unwrap();
                drop(descriptors);
                ours.send(message, &[], PATIENCE).unwrap();
            }
        }

        for path in [control.parent().expect("a folder"), control] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let why = fails(self.takes_over(control).uid(65534));
        assert!(why.contains("user 0's, and this is user 65534"), "{why}");
        let mut curl = Command::new("curl");
        curl.args(["-s", "-X", "POST", "http://localhost/take-over", "--unix-socket"]).arg(control);
        let output = curl.uid(65534).output().expect("curl");
        let why = String::from_utf8_lossy(&output.stdout);
        assert!(why.contains("take-over by user 65534: only user 0"), "{why}");
    }
}

/// Returns a folder that belongs to a user, whom root starts programs as.
pub(crate) fn folder_of(user: u32, group: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).expect("root");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("root");
    folder
}

/// Returns the user's and the group's numbers, and the effective capabilities, of each thread.
pub(crate) fn rights(process: &Started) -> Vec<[String; 3]> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.0.id())).expect("a process");
    let of = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = |key| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
            line.trim().replace('\t', " ")
        };
        Some([line("Uid:"), line("Gid:"), line("CapEff:")])
    };
    tasks.flatten().filter_map(of).collect()
}

/// Checks that every thread of a process has the user's and the group's number, and no
/// capabilities.
#[track_caller]
pub(crate) fn assert_is_user(process: &Started, user: u32, group: u32) {
    let four = |number: u32| vec![number.to_string(); 4].join(" ");
    let expected = [four(user), four(group), "0".repeat(16)];
    let rights = rights(process);
    assert!(rights.len() > 2 && rights.iter().all(|rights| *rights == expected), "{rights:?}");
}

/// Starts a program in a network namespace, if not in the test's.
pub(crate) fn start_in(namespace: Option<&NetworkNamespace>, command: &mut Command) -> Started {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = match namespace {
        Some(namespace) => namespace.enter(|| command.spawn()),
        None => command.spawn(),
    };
    Started(child.expect("dray starts"))
}

fn said(child: &mut Child) -> String {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    said
}

/// Returns true if a take-over failed because one of the processes got no CPU for a second or more,
/// as happens on a busy machine. The running one goes on then.
fn was_late(said: &str) -> bool {
    let reasons = [
        "has not sent",
        "does not let go of its ports",
        "given up",
        "Broken pipe",
        // Of the attempt before.
        "another one is under way",
    ];
    let last = said.lines().last().unwrap_or_default();
    last.starts_with("dray: take-over: ") && reasons.iter().any(|reason| last.contains(reason))
}

/// Runs a take-over that must fail, once no other is under way; returns the last line that it says.
pub(crate) fn fails(command: &mut Command) -> String {
    let mut last = String::new();
    let fails = || {
        let output = command.output().expect("dray starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        last = said.lines().last().unwrap_or_default().to_owned();
        !last.contains("another one is under way")
    };
    assert!(eventually(fails));
    last
}

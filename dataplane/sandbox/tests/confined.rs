//! A sandboxed process, observed from outside: each case is a child of this test program.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use dray_sandbox::Needs;

const CASE: &str = "DRAY_SANDBOX_CASE";
const FOLDER: &str = "DRAY_SANDBOX_FOLDER";

/// Runs `case` of [`child`] in a separate process.
fn run(case: &str, folder: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(CASE, case).env(FOLDER, folder);
    command.output().unwrap()
}

#[test]
fn child() {
    let (Ok(case), Ok(folder)) = (std::env::var(CASE), std::env::var(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    let readable = folder.join("readable");
    let needs = Needs {
        sockets: vec![&folder],
        readable: readable.is_dir().then_some(&*readable),
        ..Needs::default()
    };
    dray_sandbox::enter(&needs).unwrap();
    let work = move || match case.as_str() {
        "status" => {
            // No file can be read any more, not even this one.
            assert!(fs::read_to_string("/proc/self/status").is_err());
        }
        "sockets" => {
            let path = folder.join("a.sock");
            let listener = UnixListener::bind(&path).unwrap();
            let client = UnixStream::connect(&path).unwrap();
            drop((listener, client));
            fs::remove_file(&path).unwrap();
            assert!(UnixListener::bind("/tmp/outside.sock").is_err());
            assert!(fs::write(folder.join("file"), "x").is_err());
            assert!(fs::read("/etc/passwd").is_err());
        }
        "file" => {
            assert_eq!(fs::read_to_string(readable.join("file")).unwrap(), "text");
            assert!(fs::read(folder.join("file")).is_err());
            assert!(fs::read_dir(&readable).is_err());
            assert!(fs::write(readable.join("file"), "x").is_err());
            assert!(fs::write(readable.join("new"), "x").is_err());
        }
        "network" => drop(UdpSocket::bind("127.0.0.1:0")),
        "program" => drop(Command::new("/bin/true").status()),
        "data-socket" => data(|| drop(UnixStream::connect("/nowhere"))),
        "data-remove" => data(|| drop(fs::remove_file(folder.join("a.sock")))),
        // The allocator opens a file, so the call is on the list.
        "data-open" => data(|| {
            assert!(fs::read("/etc/passwd").is_err());
            assert!(fs::write(folder.join("file"), "x").is_err());
        }),
        "data-sleep" => data(|| {
            let memory: Vec<u64> = (0..1 << 20).collect();
            thread::sleep(std::time::Duration::from_millis(1));
            assert_eq!(memory[77], 77);
        }),
        other => panic!("unknown case {other}"),
    };
    thread::Builder::new().name("worker".to_owned()).spawn(work).unwrap().join().unwrap();
}

fn data(work: impl FnOnce()) {
    dray_sandbox::enter_data_thread().unwrap();
    work();
}

#[test]
fn needed_calls_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    for case in ["status", "sockets", "data-sleep", "data-open"] {
        let output = run(case, folder.path());
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn only_the_readable_folder_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("readable")).unwrap();
    for file in ["file", "readable/file"] {
        fs::write(folder.path().join(file), "text").unwrap();
    }
    let output = run("file", folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn forbidden_call_ends_process_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    for (case, calls) in [
        ("network", &["socket"][..]),
        ("program", &["execve", "wait4", "waitid"]),
        ("data-socket", &["socket"]),
        ("data-remove", &["unlink", "unlinkat"]),
    ] {
        let output = run(case, folder.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{case}: {stderr}");
        let said = stderr.contains("dray: sandbox: thread ") && stderr.contains("system call");
        let named = calls.iter().any(|call| stderr.contains(&format!(" ({call}), which")));
        assert!(said && named, "{case}: {stderr}");
    }
}

#[test]
fn error_names_missing_directory() {
    let output = run("status", Path::new("/no/such/folder"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("/no/such/folder"), "{stderr}");
}

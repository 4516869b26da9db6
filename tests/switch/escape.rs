//! System calls of a switch that an attacker controls, started by root: what its sandbox refuses.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr;

use libc::{c_int, c_long, pid_t};

use crate::common::{self, Started, alone, eventually};

/// Outcome of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Result(i64),
    /// It was not executed, and the process would have ended.
    Trapped,
}

impl Outcome {
    fn is_refused(self) -> bool {
        self == Self::Trapped || matches!(self, Self::Result(..0))
    }
}

/// A thread that is stopped in a system call, and makes others.
struct Hijacked {
    thread: pid_t,
    memory: File,
    registers: libc::user_regs_struct,
    /// A page for arguments.
    page: u64,
}

fn request(what: libc::c_uint, thread: pid_t, data: *mut libc::c_void) -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: `data` is what the request takes: nothing, or registers.
    match unsafe { libc::ptrace(what, thread, none, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits for the thread to stop; returns the signal.
fn stopped(thread: pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: the status is this function's own.
    let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert_eq!(waited, thread, "{}", io::Error::last_os_error());
    assert!(libc::WIFSTOPPED(status), "the thread ended: {status:#x}");
    libc::WSTOPSIG(status)
}

impl Hijacked {
    /// Stops the thread of `process` whose name begins with `name`, once it is in a system call.
    fn of(process: u32, name: &str) -> Self {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/mem"));
        let memory = memory.unwrap();
        let mut found = None;
        assert!(eventually(|| {
            let thread = thread_of(process, name);
            request(libc::PTRACE_ATTACH, thread, ptr::null_mut()).unwrap();
            stopped(thread);
            let registers = registers(thread);
            let mut instruction = [0; 2];
            memory.read_exact_at(&mut instruction, registers.rip - 2).unwrap();
            if instruction == [0x0f, 0x05] {
                found = Some((thread, registers));
            } else {
                request(libc::PTRACE_DETACH, thread, ptr::null_mut()).unwrap();
            }
            found.is_some()
        }));
        let (thread, registers) = found.unwrap();
        let mut hijacked = Self { thread, memory, registers, page: 0 };
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_ANONYMOUS;
        let page = [0, 4096, rights as u64, flags as u64, u64::MAX, 0];
        let Outcome::Result(page) = hijacked.call(libc::SYS_mmap, page) else { panic!("trapped") };
        assert!(page > 0, "{page}");
        hijacked.page = page as u64;
        hijacked
    }

    /// Makes a system call.
    fn call(&self, number: c_long, arguments: [u64; 6]) -> Outcome {
        let mut registers = self.registers;
        // The interrupted call is not restarted now.
        registers.orig_rax = u64::MAX;
        registers.rax = number as u64;
        registers.rip -= 2;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
            arguments;
        self.set(registers);
        request(libc::PTRACE_SINGLESTEP, self.thread, ptr::null_mut()).unwrap();
        let mut signals = vec![stopped(self.thread)];
        let result = self::registers(self.thread).rax as i64;
        // A call that is trapped leaves two signals, in any order.
        while self.has_signal() {
            request(libc::PTRACE_CONT, self.thread, ptr::null_mut()).unwrap();
            signals.push(stopped(self.thread));
        }
        self.set(self.registers);
        match signals[..] {
            [libc::SIGTRAP] => Outcome::Result(result),
            _ if signals.contains(&libc::SIGSYS) => Outcome::Trapped,
            _ => panic!("signals {signals:?}"),
        }
    }

    /// Returns true if one of the signals of [`call`](Self::call) waits for the thread.
    fn has_signal(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{0}/task/{0}/status", self.thread)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
        let pending = u64::from_str_radix(line.trim(), 16).unwrap();
        pending & (1 << (libc::SIGSYS - 1) | 1 << (libc::SIGTRAP - 1)) != 0
    }

    fn set(&self, mut registers: libc::user_regs_struct) {
        request(libc::PTRACE_SETREGS, self.thread, (&raw mut registers).cast()).unwrap();
    }

    /// Writes bytes to the page; returns their address.
    fn put(&self, bytes: &[u8]) -> u64 {
        self.memory.write_all_at(bytes, self.page).unwrap();
        self.page
    }

    fn put_path(&self, path: &Path) -> u64 {
        self.put(&[path.as_os_str().as_bytes(), &[0]].concat())
    }

    /// Creates a socket; returns its descriptor.
    fn socket(&self) -> u64 {
        let call = [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
        let Outcome::Result(socket @ 0..) = self.call(libc::SYS_socket, call) else {
            panic!("no socket");
        };
        socket as u64
    }

    /// Connects a socket to the name that follows the family of a Unix socket's address.
    fn connect(&self, socket: u64, name: &[u8]) -> Outcome {
        let address = [&(libc::AF_UNIX as u16).to_ne_bytes()[..], name].concat();
        let length = address.len() as u64;
        self.call(libc::SYS_connect, [socket, self.put(&address), length, 0, 0, 0])
    }
}

impl Drop for Hijacked {
    fn drop(&mut self) {
        let _ = request(libc::PTRACE_DETACH, self.thread, ptr::null_mut());
    }
}

fn registers(thread: pid_t) -> libc::user_regs_struct {
    // SAFETY: integers, for which zero is valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, thread, (&raw mut registers).cast()).unwrap();
    registers
}

fn thread_of(process: u32, name: &str) -> pid_t {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let is_named = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|found| found.starts_with(name))
    };
    let task = tasks.into_iter().find(is_named).expect("such a thread");
    task.file_name().to_str().unwrap().parse().unwrap()
}

#[test]
fn hijacked_threads_of_root_reach_nothing_else() {
    require_root!();
    let _alone = alone();
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [control, port] =
        ["control", "a"].map(|name| folder.path().join(name).display().to_string());
    let [shadow, service] = ["shadow", "service.sock"].map(|name| outside.path().join(name));
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&shadow, "secret").unwrap();
    fs::set_permissions(&shadow, fs::Permissions::from_mode(0o600)).unwrap();
    let listener = UnixListener::bind(&service).unwrap();
    listener.set_nonblocking(true).unwrap();
    let name = format!("dray-test-{}", std::process::id());
    let abstract_listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    abstract_listener.set_nonblocking(true).unwrap();
    let mut victim = Started(Command::new("sleep").arg("600").spawn().unwrap());

    let mut command = common::command();
    command.args(["switch", "--control", &control, &format!("a=vhost:{port}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let switch = Started(command.spawn().unwrap());
    let health = ["switch", "health", "--control", &control];
    assert!(eventually(|| common::dray(&health).status.success()));

    let process = switch.0.id();
    // No thread was started before the root directory changed.
    let namespace = |path: String| fs::read_link(path).unwrap();
    let inside = namespace(format!("/proc/{process}/ns/mnt"));
    assert_ne!(inside, namespace("/proc/self/ns/mnt".to_owned()));
    for task in fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        assert_eq!(namespace(format!("{}/ns/mnt", task.path().display())), inside);
    }
    let (own, foreign) = (u64::from(process), u64::from(victim.0.id()));
    let mut sockets = Vec::new();
    for name_of_thread in ["dray-control", "dray-worker"] {
        let thread = Hijacked::of(process, name_of_thread);
        if sockets.is_empty() {
            // A worker cannot create one; a peer could pass it one.
            sockets = (0..64).map(|_| thread.socket()).collect();
        }
        let mut connect = |path: &[u8]| thread.connect(sockets.pop().unwrap(), path);
        let named = |path: &Path| [path.as_os_str().as_bytes(), &[0]].concat();
        // The method works: this one may be connected to.
        if name_of_thread == "dray-control" {
            assert_eq!(connect(&named(Path::new(&control))), Outcome::Result(0));
        }
        let outcome = connect(&named(&service));
        assert!(outcome.is_refused(), "{name_of_thread}: connect: {outcome:?}");
        // From an open directory, on the same file system.
        let flags = (libc::O_PATH | libc::O_DIRECTORY) as u64;
        let path = thread.put_path(folder.path());
        let open = [libc::AT_FDCWD as u64, path, flags, 0, 0, 0];
        if let Outcome::Result(opened @ 0..) = thread.call(libc::SYS_openat, open) {
            assert!(directories(process).contains(&opened.to_string()), "{opened}");
        }
        for descriptor in directories(process) {
            let outside = outside.path().file_name().unwrap().to_str().unwrap();
            let path = format!("/proc/self/fd/{descriptor}/../{outside}/service.sock\0");
            let outcome = connect(path.as_bytes());
            assert!(outcome.is_refused(), "{name_of_thread}: {path}: {outcome:?}");
        }
        if name_of_thread == "dray-control" && landlock_has_scopes() {
            let outcome = connect(&[&[0], name.as_bytes()].concat());
            assert_eq!(outcome, Outcome::Result(-i64::from(libc::EPERM)), "abstract");
        }
        let here = libc::AT_FDCWD as u64;
        let calls = |path| {
            [
                ("chmod", libc::SYS_chmod, [path, 0o666, 0, 0, 0, 0]),
                ("chmod of set-user-ID", libc::SYS_chmod, [path, 0o4755, 0, 0, 0, 0]),
                ("fchmodat", libc::SYS_fchmodat, [here, path, 0o666, 0, 0, 0]),
                ("chown", libc::SYS_chown, [path, 1, 1, 0, 0, 0]),
                ("fchownat", libc::SYS_fchownat, [here, path, 1, 1, 0, 0]),
                ("open", libc::SYS_openat, [here, path, libc::O_RDONLY as u64, 0, 0, 0]),
                ("unlink", libc::SYS_unlinkat, [here, path, 0, 0, 0, 0]),
                ("kill", libc::SYS_kill, [foreign, libc::SIGTERM as u64, 0, 0, 0, 0]),
                ("tgkill", libc::SYS_tgkill, [foreign, foreign, libc::SIGTERM as u64, 0, 0, 0]),
                ("own kill", libc::SYS_tgkill, [own, foreign, libc::SIGTERM as u64, 0, 0, 0]),
            ]
        };
        for (what, number, arguments) in calls(thread.put_path(&shadow)) {
            let outcome = thread.call(number, arguments);
            assert!(outcome.is_refused(), "{name_of_thread}: {what}: {outcome:?}");
        }
    }
    let file = fs::metadata(&shadow).unwrap();
    assert_eq!((file.mode() & 0o7777, file.uid(), file.gid()), (0o600, 0, 0));
    for listener in [&listener, &abstract_listener] {
        let error = listener.accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{}", listener.as_raw_fd());
    }
    assert!(victim.0.try_wait().unwrap().is_none(), "the other process was ended");
    // The switch goes on as before.
    assert!(common::success(&health).contains("ok"));
}

/// Returns the numbers of the directories that a process has open.
fn directories(process: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.path().is_dir();
    let names = descriptors.filter(is_directory).map(|entry| entry.file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// Returns true if the kernel's Landlock keeps processes from others' abstract sockets (Linux 6.12).
fn landlock_has_scopes() -> bool {
    dray_sandbox::landlock_version().is_ok_and(|version| version >= 6)
}

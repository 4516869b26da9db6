//! System calls of a switch that an attacker controls, started by root: what its sandbox refuses.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;

use dray_port::PortUri;
use dray_switch::PortConfig;
use dray_switch::client::Client;
use libc::{c_int, c_long, pid_t};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::common::takeover::folder_of;
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

/// Files, services and processes, of several users, that a hijacked thread must not reach.
struct Victims {
    outside: tempfile::TempDir,
    files: Vec<(PathBuf, u32)>,
    listeners: Vec<UnixListener>,
    processes: Vec<Started>,
}

impl Victims {
    fn new(users: &[u32]) -> Self {
        let outside = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        // Permissions are not what keeps a thread out.
        mode(outside.path(), 0o777);
        let (mut files, mut listeners, mut processes) = (Vec::new(), Vec::new(), Vec::new());
        for user in users {
            let [file, service] =
                ["file", "service"].map(|name| outside.path().join(format!("{name}{user}")));
            fs::write(&file, "secret").unwrap();
            mode(&file, 0o600);
            listeners.push(UnixListener::bind(&service).unwrap());
            mode(&service, 0o777);
            for path in [&file, &service] {
                chown(path, Some(*user), Some(*user)).unwrap();
            }
            files.push((file, *user));
            let process = Command::new("sleep").arg("600").uid(*user).spawn();
            processes.push(Started(process.unwrap()));
        }
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        Self { outside, files, listeners, processes }
    }

    /// Returns the paths of services.
    fn services(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(|(_, user)| self.outside.path().join(format!("service{user}")))
    }

    fn assert_untouched(&mut self) {
        for (file, user) in &self.files {
            let file = fs::metadata(file).unwrap();
            assert_eq!((file.mode() & 0o7777, file.uid(), file.gid()), (0o600, *user, *user));
        }
        for listener in &self.listeners {
            let error = listener.accept().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{}", listener.as_raw_fd());
        }
        for process in &mut self.processes {
            assert!(process.0.try_wait().unwrap().is_none(), "another process was ended");
        }
    }
}

#[test]
fn hijacked_threads_of_root_reach_nothing_else() {
    hijack("root", 0);
}

#[test]
fn hijacked_threads_of_another_user_reach_nothing_else() {
    hijack("4242:4243", 4242);
}

/// Starts a switch as root, which becomes `user`, and makes calls in its threads.
fn hijack(user: &str, number: u32) {
    require_root!();
    let _alone = alone();
    let folder = folder_of(number, number);
    let [control, port] =
        ["control", "a"].map(|name| folder.path().join(name).display().to_string());
    let others = [0, 5555, number];
    let mut victims = Victims::new(if number == 0 { &others[..1] } else { &others });
    let name = format!("dray-test-{}", std::process::id());
    let abstract_listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    abstract_listener.set_nonblocking(true).unwrap();
    victims.listeners.push(abstract_listener);

    let mut command = common::command();
    command.args(["switch", "--control", &control, &format!("a=vhost:{port}"), "--user", user]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A shell or a supervisor may have a directory open.
    let everything = File::open("/").unwrap();
    fcntl_setfd(&everything, FdFlags::empty()).unwrap();
    let switch = Started(command.spawn().unwrap());
    drop(everything);
    let health = ["switch", "health", "--control", &control];
    assert!(eventually(|| common::dray(&health).status.success()));
    let container = victims.outside.path().join("container");
    hand_over(&container, Path::new(&control));

    let process = switch.0.id();
    // No thread was started before the root directory changed.
    let namespace = |path: String| fs::read_link(path).unwrap();
    let inside = namespace(format!("/proc/{process}/ns/mnt"));
    assert_ne!(inside, namespace("/proc/self/ns/mnt".to_owned()));
    for task in fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        assert_eq!(namespace(format!("{}/ns/mnt", task.path().display())), inside);
    }
    let mut sockets = Vec::new();
    for name_of_thread in ["dray-control", "dray-worker"] {
        let thread = Hijacked::of(process, name_of_thread);
        if sockets.is_empty() {
            // A worker cannot create one; a peer could pass it one.
            sockets = (0..128).map(|_| thread.socket()).collect();
        }
        let mut connect = |path: &[u8]| thread.connect(sockets.pop().unwrap(), path);
        // The method works: this one may be connected to.
        if name_of_thread == "dray-control" {
            assert_eq!(connect(&named(Path::new(&control))), Outcome::Result(0));
        }
        // From an open directory, on the same file system.
        let flags = (libc::O_PATH | libc::O_DIRECTORY) as u64;
        let path = thread.put_path(folder.path());
        let open = [libc::AT_FDCWD as u64, path, flags, 0, 0, 0];
        if let Outcome::Result(opened @ 0..) = thread.call(libc::SYS_openat, open) {
            assert!(directories(process).contains(&opened.to_string()), "{opened}");
        }
        let open = directories(process);
        assert!(open.len() > 2, "those of the container and of the start: {open:?}");
        for service in victims.services() {
            let outcome = connect(&named(&service));
            assert!(outcome.is_refused(), "{name_of_thread}: connect: {outcome:?}");
            let file = service.file_name().unwrap().to_str().unwrap();
            let parent = victims.outside.path().file_name().unwrap().to_str().unwrap();
            for descriptor in &open {
                let way = format!("/proc/self/fd/{descriptor}");
                for path in [
                    format!("{way}/../{file}"),
                    format!("{way}/../{parent}/{file}"),
                    format!("{way}{}", service.display()),
                ] {
                    let outcome = connect(&named(Path::new(&path)));
                    assert!(outcome.is_refused(), "{name_of_thread}: {path}: {outcome:?}");
                }
            }
        }
        if name_of_thread == "dray-control" && landlock_has_scopes() {
            let outcome = connect(&[&[0], name.as_bytes()].concat());
            assert_eq!(outcome, Outcome::Result(-i64::from(libc::EPERM)), "abstract");
        }
        for ((file, _), victim) in victims.files.iter().zip(&victims.processes) {
            try_calls(&thread, name_of_thread, process, file, victim.0.id());
        }
        for way in open.iter().map(|open| format!("/proc/self/fd/{open}")) {
            let path = format!("{way}{}", victims.files[0].0.display());
            try_calls(&thread, name_of_thread, process, Path::new(&path), 1);
        }
    }
    victims.assert_untouched();
    // The switch goes on as before.
    assert!(common::success(&health).contains("ok"));
}

/// Adds a port with the open directory `container`, in which a container is to create its socket,
/// as `dray cni` does for kind `vhost`.
fn hand_over(container: &Path, control: &Path) {
    fs::create_dir(container).unwrap();
    let uri = format!("vhost:{}/vhost.sock?client=1", container.display());
    let directory = uri.parse::<PortUri>().unwrap().prepare().unwrap();
    let mut port: PortConfig = format!("handed={uri}").parse().unwrap();
    port.fd = 1;
    Client::new(control).add_port_with(&port, &[directory[0].as_fd()]).unwrap();
    // The switch reaches what is in it.
    let listener = UnixListener::bind(container.join("vhost.sock")).unwrap();
    fs::set_permissions(container.join("vhost.sock"), fs::Permissions::from_mode(0o777)).unwrap();
    let accepted = std::thread::spawn(move || listener.accept().map(drop));
    accepted.join().unwrap().unwrap();
}

fn named(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), &[0]].concat()
}

/// Checks that a thread can neither change or open a file nor signal another process.
fn try_calls(thread: &Hijacked, name: &str, own: u32, file: &Path, victim: u32) {
    let (own, victim) = (u64::from(own), u64::from(victim));
    let (here, term) = (libc::AT_FDCWD as u64, libc::SIGTERM as u64);
    let empty = libc::AT_EMPTY_PATH as u64;
    let path = thread.put_path(file);
    let calls = [
        ("chmod", libc::SYS_chmod, [path, 0o666, 0, 0, 0, 0]),
        ("chmod of set-user-ID", libc::SYS_chmod, [path, 0o4755, 0, 0, 0, 0]),
        ("fchmodat", libc::SYS_fchmodat, [here, path, 0o666, 0, 0, 0]),
        ("chown", libc::SYS_chown, [path, 1, 1, 0, 0, 0]),
        ("fchownat", libc::SYS_fchownat, [here, path, 1, 1, 0, 0]),
        ("fchownat as of a descriptor", libc::SYS_fchownat, [here, path, 1, 1, empty, 0]),
        ("fchownat to a group", libc::SYS_fchownat, [here, path, u64::MAX, 4243, empty, 0]),
        ("open", libc::SYS_openat, [here, path, libc::O_RDONLY as u64, 0, 0, 0]),
        ("unlink", libc::SYS_unlinkat, [here, path, 0, 0, 0, 0]),
        ("kill", libc::SYS_kill, [victim, term, 0, 0, 0, 0]),
        ("tgkill", libc::SYS_tgkill, [victim, victim, term, 0, 0, 0]),
        ("own kill", libc::SYS_tgkill, [own, victim, term, 0, 0, 0]),
        ("setresuid", libc::SYS_setresuid, [0, 0, 0, 0, 0, 0]),
    ];
    for (what, number, arguments) in calls {
        let outcome = thread.call(number, arguments);
        assert!(outcome.is_refused(), "{name}: {what} of {}: {outcome:?}", file.display());
    }
}

/// Returns the numbers of the directories that a process has open.
fn directories(process: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.path().is_dir();
    let names = descriptors.filter(is_directory).map(|entry| entry.file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// Returns true if the kernel's Landlock keeps processes from others' abstract sockets (Linux
/// 6.12).
fn landlock_has_scopes() -> bool {
    dray_sandbox::landlock_version().is_ok_and(|version| version >= 6)
}

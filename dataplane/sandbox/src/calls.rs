//! Restriction of system calls by seccomp (Documentation/userspace-api/seccomp_filter.rst).

use std::collections::BTreeMap;

use libc::{c_long, *};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// An allowed system call.
pub(crate) struct Call {
    number: c_long,
    name: &'static str,
    with: With,
}

/// Arguments with which a system call is allowed.
enum With {
    Any,
    /// The argument of this index is one of these.
    OneOf(u8, &'static [u64]),
    /// The argument of this index has none of these bits.
    Without(u8, u64),
    /// The argument of this index is the number of this process.
    OwnProcess(u8),
}

/// A [`Call`] from its constant, with any arguments or those of a [`With`].
macro_rules! call {
    ($number:ident) => {
        call!($number, With::Any)
    };
    ($number:ident, $with:expr) => {
        Call { number: $number, name: stringify!($number), with: $with }
    };
}

const SIOCGIFNAME: u64 = 0x8910;
const SIOCETHTOOL: u64 = 0x8946;
const SIOCGIFFLAGS: u64 = 0x8913;
/// ioctls of net/netmap.h that pass frames between a program's rings and the kernel.
const NIOCTXSYNC: u64 = 0x6994;
const NIOCRXSYNC: u64 = 0x6995;

/// `rustix` uses this to find the page size if it may not read /proc.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Calls of every thread: moving frames, sleeping, allocating, ending.
const DATA: &[Call] = &[
    // Frames through sockets and devices, and signals to peers.
    call!(SYS_read),
    call!(SYS_readv),
    call!(SYS_write),
    call!(SYS_writev),
    call!(SYS_recvfrom),
    call!(SYS_recvmsg),
    call!(SYS_recvmmsg),
    call!(SYS_sendto),
    call!(SYS_sendmsg),
    call!(SYS_sendmmsg),
    call!(SYS_getsockopt),
    // The counter of what a TAP device has lost.
    call!(SYS_pread64),
    call!(SYS_io_submit),
    call!(SYS_io_getevents),
    // Timer for a write that a peer may delay.
    call!(SYS_timer_create),
    call!(SYS_timer_settime),
    call!(SYS_timer_delete),
    // For the peer of a unix: port, which may reconnect: its file is found anew each time. No data
    // thread creates a socket.
    call!(SYS_connect),
    call!(SYS_fstat),
    call!(SYS_fstatfs),
    call!(SYS_readlinkat),
    call!(SYS_geteuid),
    // The standard library checks a descriptor that it closes, in builds with assertions.
    call!(SYS_fcntl, With::OneOf(1, &[F_GETFD as u64])),
    // Sleep and time.
    #[cfg(target_arch = "x86_64")]
    call!(SYS_poll),
    call!(SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_epoll_wait),
    call!(SYS_epoll_pwait),
    call!(SYS_futex),
    call!(SYS_nanosleep),
    call!(SYS_clock_nanosleep),
    call!(SYS_clock_gettime),
    call!(SYS_clock_getres),
    call!(SYS_gettimeofday),
    call!(SYS_sched_yield),
    call!(SYS_getcpu),
    // Memory, none of it executable. The SIGBUS handler maps memory as well.
    call!(SYS_brk),
    call!(SYS_munmap),
    call!(SYS_mremap),
    call!(SYS_madvise),
    call!(SYS_mmap, With::Without(2, PROT_EXEC as u64)),
    call!(SYS_mprotect, With::Without(2, PROT_EXEC as u64)),
    call!(SYS_membarrier),
    call!(SYS_getrandom),
    call!(SYS_close),
    // The allocator reads /proc when it returns memory, and continues if Landlock refuses it.
    call!(SYS_openat),
    // Checks that an interface still exists when an AF_XDP socket reports that it does not; frames
    // through netmap.
    call!(SYS_ioctl, With::OneOf(1, &[SIOCGIFNAME, NIOCTXSYNC, NIOCRXSYNC])),
    // Ending a thread and the process.
    call!(SYS_rt_sigaction),
    call!(SYS_rt_sigprocmask),
    call!(SYS_rt_sigreturn),
    call!(SYS_restart_syscall),
    call!(SYS_sigaltstack),
    call!(SYS_gettid),
    call!(SYS_getpid),
    call!(SYS_tgkill, With::OwnProcess(0)),
    call!(SYS_exit),
    call!(SYS_exit_group),
    call!(SYS_prctl, With::OneOf(0, &[PR_GET_NAME as u64, PR_GET_AUXV])),
];

/// Additional calls of control threads: exchanging messages with peers and clients over Unix
/// sockets, sharing memory, and starting threads.
pub(crate) const CONTROL: &[Call] = &[
    call!(SYS_socket, With::OneOf(0, &[AF_UNIX as u64])),
    call!(SYS_socketpair, With::OneOf(0, &[AF_UNIX as u64])),
    call!(SYS_bind),
    call!(SYS_listen),
    call!(SYS_accept4),
    call!(SYS_shutdown),
    call!(SYS_getsockname),
    call!(SYS_getpeername),
    call!(SYS_setsockopt),
    // Memory and descriptors.
    call!(SYS_memfd_create),
    call!(SYS_eventfd2),
    call!(SYS_io_setup),
    call!(SYS_ftruncate),
    call!(SYS_fallocate),
    call!(SYS_epoll_create1),
    call!(SYS_epoll_ctl),
    call!(SYS_pipe2),
    call!(SYS_dup),
    call!(SYS_dup3),
    call!(SYS_fcntl, With::OneOf(1, FCNTLS)),
    call!(SYS_lseek),
    call!(SYS_ioctl, With::OneOf(1, IOCTLS)),
    // Files, as far as Landlock allows. openat2 finds a peer's socket without following links.
    call!(SYS_openat2),
    call!(SYS_newfstatat),
    call!(SYS_statx),
    call!(SYS_unlinkat),
    call!(SYS_faccessat),
    call!(SYS_faccessat2),
    // Rights of a socket, which it has before its file, and a directory for it. The file of a
    // socket can only be opened with O_PATH, so fchown(2) does not take it; and a filter
    // cannot read the path that fchownat(2) takes besides a descriptor, even with
    // AT_EMPTY_PATH. Without capabilities it gives files of the process's own user, as far as
    // they have a name in its root directory, to groups which that user is in, and no others.
    call!(SYS_fchmod, With::Without(1, SPECIAL_BITS)),
    call!(SYS_umask),
    call!(SYS_fchownat, With::OneOf(4, &[AT_EMPTY_PATH as u64])),
    call!(SYS_mkdirat),
    call!(SYS_getcwd),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_readlink),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_access),
    // Threads.
    call!(SYS_clone),
    call!(SYS_clone3),
    call!(SYS_set_robust_list),
    call!(SYS_rseq),
    call!(SYS_sched_setaffinity),
    call!(SYS_sched_getaffinity),
    call!(SYS_getuid),
    // To confine a data thread further.
    call!(SYS_prctl, With::OneOf(0, &[PR_SET_NAME as u64, PR_SET_NO_NEW_PRIVS as u64])),
    call!(SYS_seccomp),
];

/// ioctls of control threads: sockets' blocking mode and amount of data to read, and the test for a
/// terminal on standard output. An AF_XDP port restores its interface's settings when it closes
/// (SIOCETHTOOL), which the kernel refuses without capabilities. Ports find out that their
/// interface is down (SIOCGIFFLAGS). A TAP device that another program
/// passes is examined, and its offloads set.
const IOCTLS: &[u64] = &[
    FIONBIO,
    FIONREAD,
    TCGETS,
    TIOCGWINSZ,
    SIOCETHTOOL,
    SIOCGIFFLAGS,
    TUNGETIFF,
    TUNGETVNETHDRSZ,
    TUNSETOFFLOAD,
];

/// Commands of fcntl(2): none that makes a descriptor send signals.
const FCNTLS: &[u64] = &[
    F_DUPFD as u64,
    F_DUPFD_CLOEXEC as u64,
    F_GETFD as u64,
    F_SETFD as u64,
    F_GETFL as u64,
    F_SETFL as u64,
    F_ADD_SEALS as u64,
    F_GET_SEALS as u64,
];

/// Mode bits that make a program run as the owner or group of its file.
const SPECIAL_BITS: u64 = 0o7000;

/// Calls that are not allowed, which a report names.
const REFUSED: &[Call] = &[
    call!(SYS_accept),
    call!(SYS_bpf),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_chmod),
    call!(SYS_clock_settime),
    call!(SYS_copy_file_range),
    call!(SYS_execve),
    call!(SYS_execveat),
    call!(SYS_fchmodat),
    call!(SYS_fdatasync),
    call!(SYS_fsync),
    call!(SYS_getdents64),
    call!(SYS_io_uring_setup),
    call!(SYS_kill),
    call!(SYS_mlock),
    call!(SYS_mlock2),
    call!(SYS_mount),
    call!(SYS_perf_event_open),
    call!(SYS_pidfd_open),
    call!(SYS_prlimit64),
    call!(SYS_pselect6),
    call!(SYS_ptrace),
    call!(SYS_pwrite64),
    call!(SYS_renameat2),
    call!(SYS_sched_setscheduler),
    call!(SYS_sendfile),
    call!(SYS_setns),
    call!(SYS_setpriority),
    call!(SYS_splice),
    call!(SYS_statfs),
    call!(SYS_sysinfo),
    call!(SYS_uname),
    call!(SYS_unshare),
    call!(SYS_wait4),
    call!(SYS_waitid),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_dup2),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_fork),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_lstat),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_open),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_pipe),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_rename),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_stat),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_vfork),
];

/// Returns the name of a system call, without `SYS_`, if it is on one of the lists.
pub(crate) fn name(number: c_long) -> Option<&'static str> {
    let mut known = DATA.iter().chain(CONTROL).chain(REFUSED);
    known.find(|call| call.number == number)?.name.strip_prefix("SYS_")
}

/// Restricts the calling thread, and threads that it starts, to the calls of data threads and
/// `more`. Restrictions accumulate: a call that an earlier list lacks stays refused.
pub(crate) fn restrict(more: &[Call]) -> Result<(), String> {
    let program = compile(more).map_err(|error| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
}

fn compile(more: &[Call]) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in DATA.iter().chain(more) {
        // A call without any rule is allowed with any arguments.
        let rules = rules.entry(call.number).or_default();
        let argument = |index, operator, value| {
            let length = SeccompCmpArgLen::Dword;
            SeccompRule::new(vec![SeccompCondition::new(index, length, operator, value)?])
        };
        match call.with {
            With::Any => {}
            With::OneOf(index, values) => {
                for value in values {
                    rules.push(argument(index, SeccompCmpOp::Eq, *value)?);
                }
            }
            With::Without(index, bits) => {
                rules.push(argument(index, SeccompCmpOp::MaskedEq(bits), 0)?);
            }
            With::OwnProcess(index) => {
                rules.push(argument(index, SeccompCmpOp::Eq, std::process::id().into())?);
            }
        }
    }
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch)?.try_into()
}

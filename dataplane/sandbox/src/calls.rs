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
    with: With,
}

/// Arguments with which a system call is allowed.
enum With {
    Any,
    /// The argument of this index is one of these.
    OneOf(u8, &'static [u64]),
    /// The argument of this index has none of these bits.
    Without(u8, u64),
}

const fn any(number: c_long) -> Call {
    Call { number, with: With::Any }
}

const SIOCGIFNAME: u64 = 0x8910;
const SIOCETHTOOL: u64 = 0x8946;
/// ioctls of net/netmap.h that pass frames between a program's rings and the kernel.
const NIOCTXSYNC: u64 = 0x6994;
const NIOCRXSYNC: u64 = 0x6995;

/// `rustix` uses this to find the page size if it may not read /proc.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Calls of every thread: moving frames, sleeping, allocating, ending.
const DATA: &[Call] = &[
    // Frames through sockets and devices, and signals to peers.
    any(SYS_read),
    any(SYS_readv),
    any(SYS_write),
    any(SYS_writev),
    any(SYS_recvfrom),
    any(SYS_recvmsg),
    any(SYS_recvmmsg),
    any(SYS_sendto),
    any(SYS_sendmsg),
    any(SYS_sendmmsg),
    any(SYS_getsockopt),
    any(SYS_io_submit),
    any(SYS_io_getevents),
    // Timer for a write that a peer may delay.
    any(SYS_timer_create),
    any(SYS_timer_settime),
    any(SYS_timer_delete),
    // For the peer of a unix: port, which may reconnect. No data thread creates a socket.
    any(SYS_connect),
    // Sleep and time.
    #[cfg(target_arch = "x86_64")]
    any(SYS_poll),
    any(SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    any(SYS_epoll_wait),
    any(SYS_epoll_pwait),
    any(SYS_futex),
    any(SYS_nanosleep),
    any(SYS_clock_nanosleep),
    any(SYS_clock_gettime),
    any(SYS_clock_getres),
    any(SYS_gettimeofday),
    any(SYS_sched_yield),
    any(SYS_getcpu),
    // Memory, none of it executable. The SIGBUS handler maps memory as well.
    any(SYS_brk),
    any(SYS_munmap),
    any(SYS_mremap),
    any(SYS_madvise),
    Call { number: SYS_mmap, with: With::Without(2, PROT_EXEC as u64) },
    Call { number: SYS_mprotect, with: With::Without(2, PROT_EXEC as u64) },
    any(SYS_membarrier),
    any(SYS_getrandom),
    any(SYS_close),
    // The allocator reads /proc when it returns memory, and continues if Landlock refuses it.
    any(SYS_openat),
    // Checks that an interface still exists when an AF_XDP socket reports that it does not; frames
    // through netmap.
    Call { number: SYS_ioctl, with: With::OneOf(1, &[SIOCGIFNAME, NIOCTXSYNC, NIOCRXSYNC]) },
    // Ending a thread and the process.
    any(SYS_rt_sigaction),
    any(SYS_rt_sigprocmask),
    any(SYS_rt_sigreturn),
    any(SYS_restart_syscall),
    any(SYS_sigaltstack),
    any(SYS_gettid),
    any(SYS_getpid),
    any(SYS_tgkill),
    any(SYS_exit),
    any(SYS_exit_group),
    Call { number: SYS_prctl, with: With::OneOf(0, &[PR_GET_NAME as u64, PR_GET_AUXV]) },
];

/// Additional calls of control threads: exchanging messages with peers and clients over Unix
/// sockets, sharing memory, and starting threads.
pub(crate) const CONTROL: &[Call] = &[
    Call { number: SYS_socket, with: With::OneOf(0, &[AF_UNIX as u64]) },
    Call { number: SYS_socketpair, with: With::OneOf(0, &[AF_UNIX as u64]) },
    any(SYS_bind),
    any(SYS_listen),
    any(SYS_accept4),
    any(SYS_shutdown),
    any(SYS_getsockname),
    any(SYS_getpeername),
    any(SYS_setsockopt),
    // Memory and descriptors.
    any(SYS_memfd_create),
    any(SYS_eventfd2),
    any(SYS_io_setup),
    any(SYS_ftruncate),
    any(SYS_fallocate),
    any(SYS_epoll_create1),
    any(SYS_epoll_ctl),
    any(SYS_pipe2),
    any(SYS_dup),
    any(SYS_dup3),
    any(SYS_fcntl),
    any(SYS_fstat),
    any(SYS_fstatfs),
    any(SYS_pread64),
    any(SYS_lseek),
    Call { number: SYS_ioctl, with: With::OneOf(1, IOCTLS) },
    // Files, as far as Landlock allows. openat2 finds a peer's socket without following links.
    any(SYS_openat2),
    any(SYS_newfstatat),
    any(SYS_statx),
    any(SYS_readlinkat),
    any(SYS_unlinkat),
    any(SYS_faccessat),
    any(SYS_faccessat2),
    // Rights of a socket, and a directory for it.
    any(SYS_fchmod),
    any(SYS_fchmodat),
    any(SYS_fchownat),
    any(SYS_mkdirat),
    any(SYS_getcwd),
    #[cfg(target_arch = "x86_64")]
    any(SYS_readlink),
    #[cfg(target_arch = "x86_64")]
    any(SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    any(SYS_chmod),
    #[cfg(target_arch = "x86_64")]
    any(SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    any(SYS_access),
    // Threads.
    any(SYS_clone),
    any(SYS_clone3),
    any(SYS_set_robust_list),
    any(SYS_rseq),
    any(SYS_sched_setaffinity),
    any(SYS_sched_getaffinity),
    any(SYS_geteuid),
    any(SYS_getuid),
    // To confine a data thread further.
    Call {
        number: SYS_prctl,
        with: With::OneOf(0, &[PR_SET_NAME as u64, PR_SET_NO_NEW_PRIVS as u64]),
    },
    any(SYS_seccomp),
];

/// ioctls of control threads: sockets' blocking mode and amount of data to read, and the test for a
/// terminal on standard output. An AF_XDP port restores its interface's settings when it closes
/// (SIOCETHTOOL), which the kernel refuses without capabilities. A TAP device that another program
/// passes is examined, and its offloads set.
const IOCTLS: &[u64] = &[
    FIONBIO,
    FIONREAD,
    TCGETS,
    TIOCGWINSZ,
    SIOCETHTOOL,
    TUNGETIFF,
    TUNGETVNETHDRSZ,
    TUNSETOFFLOAD,
];

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
        }
    }
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch)?.try_into()
}

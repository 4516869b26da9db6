//! BPF and AF_XDP.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::finding::{Finding, State, needs_root};
use super::sys;

const GROUP: &str = "bpf";

pub(super) fn examine() -> Vec<Finding> {
    let af_xdp = af_xdp();
    let checksums = (af_xdp.state == State::Ok).then(af_xdp_checksums);
    [maps(), jit(), btf(), af_xdp].into_iter().chain(checksums).collect()
}

fn maps() -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "bpf(2)", state, detail);
    match sys::create_bpf_array() {
        Ok(_) => finding(State::Ok, "map created"),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => needs_root(GROUP, "bpf(2)"),
            Some(Errno::NOSYS) => finding(State::Missing, "not supported by this kernel").advise(
                "XDP programs cannot be loaded, so AF_XDP cannot be used; boot a kernel with \
                 CONFIG_BPF_SYSCALL",
            ),
            _ => finding(State::Warning, &error.to_string()),
        },
    }
}

fn jit() -> Finding {
    // On most kernels, only root may read it.
    let mut value = String::new();
    let read = File::open("/proc/sys/net/core/bpf_jit_enable")
        .and_then(|mut file| file.read_to_string(&mut value));
    match read.map_err(|error| error.kind()) {
        Ok(_) if value.trim() != "0" => Finding::new(GROUP, "JIT", State::Ok, "on"),
        Ok(_) => Finding::new(GROUP, "JIT", State::Warning, "off").advise(
            "XDP programs run in the interpreter, several times slower; sysctl \
             net.core.bpf_jit_enable=1",
        ),
        Err(std::io::ErrorKind::PermissionDenied) => needs_root(GROUP, "JIT"),
        // Like other machine-wide settings, it is only visible in the initial network namespace.
        Err(_) if !Path::new("/proc/sys/net/core/netdev_max_backlog").exists() => {
            Finding::new(GROUP, "JIT", State::Unknown, "not visible in this network namespace")
        }
        Err(_) => Finding::new(GROUP, "JIT", State::Missing, "not supported by this kernel")
            .advise(
                "XDP programs run in the interpreter, several times slower; boot a kernel with \
                 CONFIG_BPF_JIT",
            ),
    }
}

fn btf() -> Finding {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Finding::new(GROUP, "BTF", State::Ok, "available");
    }
    Finding::new(GROUP, "BTF", State::Missing, "not provided by this kernel").advise(
        "BPF programs that read kernel structures cannot be loaded; boot a kernel with \
         CONFIG_DEBUG_INFO_BTF",
    )
}

fn af_xdp() -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "AF_XDP", state, detail);
    match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(_) => finding(State::Ok, "socket opened"),
        Err(Errno::PERM | Errno::ACCESS) => needs_root(GROUP, "AF_XDP"),
        Err(Errno::AFNOSUPPORT) => finding(State::Missing, "not supported by this kernel")
            .advise("afxdp: ports cannot be opened; boot a kernel with CONFIG_XDP_SOCKETS"),
        Err(error) => finding(State::Warning, &error.to_string()),
    }
}

/// Reports how `afxdp:` ports treat packets whose checksums a local kernel leaves to hardware. The
/// kernel does not mark these packets.
fn af_xdp_checksums() -> Finding {
    let detail = "of a local kernel's TCP and UDP completed on veth pairs and in generic mode; for \
                  SCTP and in tunnels, run `ethtool -K IF tx off` at the sender";
    Finding::new(GROUP, "AF_XDP checksums", State::Ok, detail)
}

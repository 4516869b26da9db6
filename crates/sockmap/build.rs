//! Compiles the program in `bpf/` for the kernel's virtual machine.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=../xdp/bpf/bpf.h");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let status = Command::new(&clang)
        // -g: the loader reads maps from the type information.
        .args(["-target", "bpf", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debian's path of asm/, which is the host's and not the target's.
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .args(["-I../xdp/bpf", "-c", "bpf/shortcut.c", "-o", &format!("{out}/shortcut.o")])
        .status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{clang} could not build bpf/shortcut.c: {status:?}; clang and the kernel's headers are \
         needed (Debian: clang, linux-libc-dev), set CLANG to use another clang"
    );
}

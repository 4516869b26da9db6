//! Compiles the programs in `bpf/` for the kernel's virtual machine.

use std::env;
use std::process::Command;

const PROGRAMS: [&str; 4] = ["bypass", "redirect", "shortcut", "sockets"];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets it");
    for program in PROGRAMS {
        let source = format!("bpf/{program}.c");
        let status = Command::new(&clang)
            // -g: the loader reads maps and variables from the type information.
            .args(["-target", "bpf", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
            // Debian's path of asm/, which is the host's and not the target's.
            .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
            .args(["-c", &source, "-o", &format!("{out}/{program}.o")])
            .status();
        let built = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        assert!(
            built,
            "{clang} could not build {source}: {status:?}; clang and the kernel's headers are \
             needed (Debian: clang, linux-libc-dev), set CLANG to use another clang"
        );
    }
}

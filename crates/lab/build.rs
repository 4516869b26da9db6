//! Builds the library that peers are given which share a CPU: see `src/peer/yield.c`.

use std::env;
use std::process::Command;

fn main() {
    const SOURCE: &str = "src/peer/yield.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let status = Command::new(&compiler)
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", SOURCE])
        .args(["-o", &format!("{out}/yield.so")])
        .status();
    let built = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    assert!(built, "{compiler} could not build {SOURCE}: {status:?}; a C compiler is needed");
}

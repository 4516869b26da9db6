//! Gives the library its SONAME: the number changes when the ABI does.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdray.so.0");
}

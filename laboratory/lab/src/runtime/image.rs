//! Container image: an empty root file system in which the machine's `dray` appears, read-only,
//! with the shared libraries that it is linked with.
//!
//! Nothing is pulled or copied, and any `dray` works: a statically linked one needs no libraries,
//! and a dynamically linked one finds them at their paths on the machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::LabError;
use crate::process::PeerDir;

/// Path of the program inside the container.
pub(super) const PROGRAM: &str = "/dray";

/// Files of the machine that the containers of one lab see.
pub(super) struct Image {
    /// Root folder, empty except for the mount points of files and folders.
    pub(super) root: PathBuf,
    /// Each file on the machine, and its path in the container.
    pub(super) files: Vec<(PathBuf, PathBuf)>,
}

impl Image {
    pub(super) fn new(program: &Path, dir: &PeerDir) -> Result<Self, LabError> {
        let doing = |what: &str| LabError::doing(format!("image for containers: {what}"));
        // The engine would resolve `/proc/self/exe` to itself.
        let program = fs::canonicalize(program).map_err(doing("the program"))?;
        let libraries = libraries(&program).map_err(doing("ldd"))?;
        let root = dir.join("root");
        let mut files = vec![(program, PathBuf::from(PROGRAM))];
        files.extend(libraries.into_iter().map(|library| (library.clone(), library)));
        let within = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let make = || {
            let sockets = dir.sockets();
            for folder in [Path::new("/proc"), Path::new("/sys"), Path::new("/dev"), &sockets] {
                fs::create_dir_all(within(folder))?;
            }
            for (_, place) in &files {
                fs::create_dir_all(within(place.parent().unwrap_or(Path::new("/"))))?;
                File::create(within(place))?;
            }
            Ok(())
        };
        make().map_err(doing("root"))?;
        Ok(Self { root, files })
    }
}

/// Returns the shared libraries that a program is linked with, and the loader, by the paths at
/// which the loader looks for them; empty for a statically linked program.
fn libraries(program: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut command = Command::new("ldd");
    command.arg(program).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output()?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses lines of the form `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader. The
/// library that the kernel provides (vDSO) has no path.
fn parse(text: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
        let path = path.split(" (").next().filter(|path| path.starts_with('/'));
        // Skips "/path/to/program: not a dynamic executable".
        path.filter(|path| !path.contains(": ")).map(PathBuf::from)
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ldd_output() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f11)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f12)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f13)\n";
        let found: Vec<_> = parse(text).into_iter().collect();
        let libraries = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(found, libraries.map(PathBuf::from));
        for text in ["\tstatically linked\n", "\tnot a dynamic executable\n", "/dray: not one\n"] {
            assert!(parse(text).is_empty(), "{text}");
        }
    }
}

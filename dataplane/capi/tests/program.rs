//! Programs in C over the library: as an installed header and library serve them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dray_port::{Frame, Port, PortUri};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the library's file. If the variable LIBDRAY does not name it, it is built: cargo builds
/// it for no test.
fn library() -> PathBuf {
    if let Some(built) = std::env::var_os("LIBDRAY") {
        return built.into();
    }
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let manifest = format!("{HERE}/Cargo.toml");
        run(
            env!("CARGO"),
            &[&"build", &"--quiet", &"--locked", &"--lib", &"--manifest-path", &manifest],
        );
    });
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(2).unwrap().join("libdray.so")
}

/// Runs a command that must succeed; returns what it printed.
fn run(program: &str, arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = Command::new(program).args(arguments.iter().map(AsRef::as_ref)).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Compiles `source` with all warnings as errors. Loads the library at the place where it was
/// built.
fn compile(compiler: &str, flags: &[&str], source: &Path, program: &Path) {
    let library = library();
    let soname = program.with_file_name("libdray.so.0");
    if !soname.exists() {
        fs::copy(library, &soname).unwrap();
        std::os::unix::fs::symlink("libdray.so.0", program.with_file_name("libdray.so")).unwrap();
    }
    let folder = program.parent().unwrap();
    let include = format!("-I{HERE}/include");
    let (link, path) =
        (format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display()));
    let mut arguments: Vec<&dyn AsRef<OsStr>> =
        vec![&"-std=c11", &"-Wall", &"-Wextra", &"-Wpedantic", &"-Werror", &"-O2", &include];
    arguments.extend(flags.iter().map(|flag| flag as &dyn AsRef<OsStr>));
    let rest: [&dyn AsRef<OsStr>; 6] = [&source, &link, &path, &"-ldray", &"-pthread", &"-o"];
    arguments.extend(rest);
    arguments.push(&program);
    run(compiler, &arguments);
}

/// The compilers and flags with which the programs must work.
const BUILDS: [(&str, &[&str]); 3] = [
    ("gcc", &[]),
    ("clang", &[]),
    ("gcc", &["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]),
];

fn source(name: &str) -> PathBuf {
    Path::new(HERE).join(name)
}

#[test]
fn header_is_what_cbindgen_gives() {
    let config = cbindgen::Config::from_file(source("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_src(source("src/lib.rs"));
    let mut header = Vec::new();
    builder.with_config(config).generate().unwrap().write(&mut header);
    let header = String::from_utf8(header).unwrap();
    let path = source("include/dray.h");
    if std::env::var_os("DRAY_HEADER_WRITE").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(header == committed, "include/dray.h is old: run this test with DRAY_HEADER_WRITE=1");
}

#[test]
fn symbols_and_soname_are_the_committed_ones() {
    let library = library();
    let symbols = run("nm", &[&"-D", &"--defined-only", &library]);
    let mut symbols: Vec<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    symbols.sort_unstable();
    let committed = fs::read_to_string(source("symbols.txt")).unwrap();
    assert_eq!(symbols, committed.lines().collect::<Vec<_>>());
    let dynamic = run("readelf", &[&"-d", &library]);
    assert!(dynamic.contains("Library soname: [libdray.so.0]"), "{dynamic}");
}

/// `make install-lib` gives all that a build with pkg-config needs.
#[test]
fn installed_library_is_found_by_pkg_config() {
    let folder = tempfile::tempdir().unwrap();
    let (root, path) = (folder.path(), |name: &str| folder.path().join(name));
    let top = format!("{HERE}/../..");
    let arguments = ["-s", "-C", &top, "install-lib", "PREFIX=/usr"].map(str::to_owned);
    let destination = format!("DESTDIR={}", root.display());
    let library = format!("LIBDRAY={}", library().display());
    let mut arguments = arguments.to_vec();
    arguments.extend([destination, library]);
    let arguments: Vec<&dyn AsRef<OsStr>> =
        arguments.iter().map(|argument| argument as &dyn AsRef<OsStr>).collect();
    run("make", &arguments);
    assert!(path("usr/share/man/man3/libdray.3").exists());
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "dray"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("PKG_CONFIG_LIBDIR", path("usr/lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .output()
        .unwrap();
    assert!(flags.status.success(), "{}", String::from_utf8_lossy(&flags.stderr));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let program = path("forward");
    let output = Command::new("gcc")
        .arg(source("examples/forward.c"))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program)
        .args(["raw:eth0?batch=0", "null:"])
        .env("LD_LIBRARY_PATH", path("usr/lib"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("1 to 256"), "{stderr}");
}

#[test]
fn misuse_has_a_code_and_a_message() {
    for (compiler, flags) in BUILDS {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("misuse");
        compile(compiler, flags, &source("tests/misuse.c"), &program);
        run(program.to_str().unwrap(), &[&folder.path()]);
    }
}

fn open(uri: &str) -> Port {
    uri.parse::<PortUri>().unwrap().open().unwrap()
}

fn end(mut child: std::process::Child) -> Output {
    run("kill", &[&"-TERM", &child.id().to_string()]);
    let until = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("the program ignores SIGTERM");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// The example moves every frame, in order and unchanged, both ways.
#[test]
fn example_forwards_every_frame() {
    assert!(fs::read_to_string(source("examples/forward.c")).unwrap().lines().count() <= 60);
    for (compiler, flags) in BUILDS {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let program = folder.path().join("forward");
        compile(compiler, flags, &source("examples/forward.c"), &program);
        let mut ends = [("a", "b"), ("d", "c")]
            .map(|(own, peer)| open(&format!("unix:{}?peer={}&wait=poll", path(own), path(peer))));
        let ports = [("b", "a"), ("c", "d")]
            .map(|(own, peer)| format!("unix:{}?peer={}", path(own), path(peer)));
        let child = Command::new(&program)
            .args(&ports)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !(Path::new(&path("b")).exists() && Path::new(&path("c")).exists()) {
            assert!(Instant::now() < until, "the example opens its ports");
            std::thread::sleep(Duration::from_millis(5));
        }
        for way in 0..2 {
            for number in 0..500_u32 {
                let len = 60 + number as usize % 1400;
                let mut frame = vec![number as u8; len];
                frame[..4].copy_from_slice(&number.to_be_bytes());
                let until = Instant::now() + Duration::from_secs(20);
                while ends[way].tx[0].transmit(&[Frame::from(&frame[..])]).unwrap() == 0 {
                    assert!(Instant::now() < until, "frame {number} is taken");
                }
                let mut got = None;
                while got.is_none() {
                    assert!(Instant::now() < until, "{compiler} {flags:?}: frame {number} arrives");
                    ends[1 - way].rx[0]
                        .receive(&mut |frames| {
                            let mut bytes = vec![0; frames[0].len()];
                            frames[0].copy_into(&mut bytes);
                            got = Some(bytes);
                            1
                        })
                        .unwrap();
                }
                assert!(got.as_ref() == Some(&frame), "frame {number}");
            }
        }
        let output = end(child);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{compiler} {flags:?}: {stderr}");
    }
}

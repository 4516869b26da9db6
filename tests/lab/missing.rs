//! Programs that a lab needs and that are missing or too old.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{self, DRAY, alone};

#[test]
fn missing_or_old_engine_is_an_error() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let complain = || {
        let mut bench = common::command();
        bench.args([
            "bench",
            "--runtime",
            "crun",
            "--technique",
            "veth/udp",
            "--json",
            "-",
            "--quick",
        ]);
        let output = bench.env("PATH", folder.path()).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = "dray: runtime crun: crun is not installed; apt install crun\n";
    assert_eq!(complain(), missing);
    let program = folder.path().join("crun");
    for (version, expected) in [
        (
            "crun version 0.19.1",
            "crun 0.19.1 is too old; 1.0 or later is required; apt install crun",
        ),
        ("hello", "unexpected output of crun --version: \"hello\""),
    ] {
        fs::write(&program, format!("#!/bin/sh\necho '{version}'\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let message = complain();
        assert!(message.contains(expected), "{message}");
    }
    let output = common::dray(&["bench", "--runtime", "rkt"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("embedded, docker, podman, lxc, crun, runc"), "{message}");
}

/// Puts a program first in `PATH` that reports an old DPDK version, as testpmd would.
#[test]
fn too_old_peer_is_skipped_with_reason() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("dpdk-testpmd");
    fs::write(&program, "#!/bin/sh\necho \"EAL: RTE Version: 'DPDK 20.11.10'\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let words = ["--technique", "testpmd/pairs/virtio", "--quick", "--duration", "0.2"];
    let output = common::command()
        .args(["bench", "switches", "--json", "-"])
        .args(words)
        .env("PATH", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    let expected = format!(
        "testpmd: {} is DPDK 20.11.10; 22.11 or later is required; apt install dpdk-dev",
        program.display()
    );
    assert_eq!(json["results"][0]["skipped"], expected, "{said}");
}

#[test]
fn bench_reports_missing_ns3() {
    let _alone = alone();
    require_root!();
    // A copy in another place does not find the program beside it.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without-ns3/a/b/c");
    fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("dray");
    let _ = fs::remove_file(&copy);
    fs::hard_link(DRAY, &copy).unwrap();
    let output = Command::new(&copy)
        .args(["bench", "casoni2013-ns3", "--quick", "--technique", "veth/ns3-fd"])
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    fs::remove_file(&copy).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = "no ns-3 program: make ns-3, see docs/ns-3.md";
    assert!(!output.status.success() && stderr.contains(why), "{stderr}");
}

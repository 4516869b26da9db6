//! Podman, which has no daemon.

use std::process::Command;

use super::docker;
use super::engine::{Engine, Spec};
use super::state::FOLDER;

/// Returns the command that runs a container.
pub(super) fn run(engine: &Engine, spec: &Spec<'_>) -> Command {
    let mut command = client(engine);
    command.args(["run", "--rm", "--log-driver", "none", "--no-hosts"]);
    docker::common_options(&mut command, engine, spec);
    if spec.address.is_some() {
        // Containers resolve no names.
        command.args(["--dns", "none"]);
    }
    command.arg("--rootfs").arg(&engine.image.root).args(&spec.command);
    command
}

/// Returns a `podman` command that keeps all its files in the engine's state folder.
pub(super) fn client(engine: &Engine) -> Command {
    let mut command = engine.command("podman");
    for (option, name) in [
        ("--root", "storage"),
        ("--runroot", "run"),
        ("--tmpdir", "tmp"),
        ("--network-config-dir", "networks"),
    ] {
        command.arg(option).arg(format!("{FOLDER}/{name}"));
    }
    command.args(["--cgroup-manager", "cgroupfs", "--events-backend", "none"]);
    command.args(["--storage-driver", "vfs"]);
    command
}

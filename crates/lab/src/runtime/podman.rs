//! Podman, which has no daemon.

use std::process::Command;

use super::state::FOLDER;
use super::{Engine, Spec, docker};

/// The command that runs a container.
pub(super) fn run(engine: &Engine, spec: &Spec<'_>) -> Command {
    let mut command = engine.command("podman");
    for (option, name) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
        command.arg(option).arg(format!("{FOLDER}/{name}"));
    }
    command.args(["--cgroup-manager", "cgroupfs", "--events-backend", "none"]);
    command.args(["--storage-driver", "vfs"]);
    command.args(["run", "--rm", "--log-driver", "none", "--network", "none", "--no-hosts"]);
    docker::common_options(&mut command, engine, spec);
    command.arg("--rootfs").arg(&engine.image.root).args(&spec.command);
    command
}

//! Docker: a private engine of the lab, inside the "host".

use std::process::Command;

use serde_json::json;

use super::devices;
use super::engine::{Engine, Spec};
use super::state::FOLDER;
use crate::namespace::Init;
use crate::process::Process;
use crate::{Cancel, LabError};

/// Image of every container; it is empty.
const IMAGE: &str = "dray";

/// Starts the engine and imports the image into it.
pub(super) fn start(
    engine: &Engine,
    host: &Init,
    cancel: &Cancel,
) -> Result<Vec<Process>, LabError> {
    let (containerd, containerd_socket) = start_containerd(engine, host, cancel)?;
    let socket = socket(engine);
    let settings = json!({
        "hosts": [format!("unix://{socket}")],
        "containerd": containerd_socket,
        "data-root": state("data"),
        "exec-root": state("exec"),
        "pidfile": state("docker.pid"),
        // By default, the key is outside of that folder.
        "deprecated-key-path": state("key.json"),
        // The image is empty, so there are no layers to share.
        "storage-driver": "vfs",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": engine.group,
        // No networks except those that the lab asks for.
        "bridge": "none",
        "iptables": engine.has_rules,
        "ip6tables": false,
        "ip-forward": false,
        "userland-proxy": false,
    });
    let settings = engine.dir.write("docker.json", &settings.to_string())?;
    let mut command = engine.command("dockerd");
    command.arg("--config-file").arg(settings);
    let mut process = Process::start_within(host, &engine.dir, "dockerd", &mut command)?;
    // It opens the socket before it is ready; then the client waits for it.
    process.wait_until_listening(cancel, "socket of its own", socket.as_ref())?;
    // An archive of no files: two blocks of zeros (pax(1), "ustar Interchange Format").
    let nothing = engine.dir.write("nothing.tar", &"\0".repeat(1024))?;
    let mut import = client(engine);
    import.arg("import").arg(nothing).arg(IMAGE);
    let mut import = Process::start_within(host, &engine.dir, "docker import", &mut import)?;
    let imported = import.wait_until_done(cancel);
    if let Some(end) = process.end() {
        return Err(LabError::peer(process.name(), end));
    }
    imported?;
    Ok(vec![process, containerd])
}

/// Starts the daemon that dockerd needs; returns its socket too. Started by dockerd, it would have
/// only 15 s to come up, which is too short on a busy machine.
fn start_containerd(
    engine: &Engine,
    host: &Init,
    cancel: &Cancel,
) -> Result<(Process, String), LabError> {
    let socket = engine.dir.join("containerd.sock").to_string_lossy().into_owned();
    let settings = format!(
        "version = 2
root = '{}'
state = '{}'
disabled_plugins = ['io.containerd.grpc.v1.cri']
[grpc]
address = '{socket}'
[plugins.'io.containerd.internal.v1.opt']
path = '{}'
",
        state("containerd"),
        state("containerd-state"),
        state("containerd-opt"),
    );
    let settings = engine.dir.write("containerd.toml", &settings)?;
    let mut command = engine.command("containerd");
    command.arg("--config").arg(settings);
    let mut process = Process::start_within(host, &engine.dir, "containerd", &mut command)?;
    process.wait_until_listening(cancel, "socket of its own", socket.as_ref())?;
    Ok((process, socket))
}

/// Returns the path of a file or folder of the engine's state.
fn state(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// Returns the command that runs a container.
pub(super) fn run(engine: &Engine, spec: &Spec<'_>) -> Command {
    let mut command = client(engine);
    command.args(["run", "--rm", "--log-driver", "none", "--read-only"]);
    common_options(&mut command, engine, spec);
    command.arg(IMAGE).args(&spec.command);
    command
}

/// Adds the options that Docker and Podman have in common.
pub(super) fn common_options(command: &mut Command, engine: &Engine, spec: &Spec<'_>) {
    command.args(["--name", spec.name, "--hostname", spec.name, "--cpuset-cpus", &spec.cpus]);
    command.arg("--cgroup-parent").arg(&engine.group);
    command.args(["--cap-drop", "ALL"]);
    for capability in engine.capabilities() {
        command.args(["--cap-add", capability]);
    }
    command.args(["--security-opt", "no-new-privileges", "--security-opt", "label=disable"]);
    for (file, place) in &engine.image.files {
        command.arg("--volume").arg(format!("{}:{}:ro", file.display(), place.display()));
    }
    let sockets = engine.sockets();
    command.arg("--volume").arg(format!("{0}:{0}", sockets.display()));
    if !engine.devices.is_empty() {
        command.args(["--device", devices::TUN]);
    }
    for devices in &engine.devices {
        command.arg("--device-cgroup-rule").arg(devices.to_string());
    }
    command.args(["--network", engine.network.as_deref().unwrap_or("none")]);
    if let Some(address) = spec.address {
        command.arg("--ip").arg(address.to_string());
    }
}

pub(super) fn client(engine: &Engine) -> Command {
    let mut command = engine.command("docker");
    command.arg("--host").arg(format!("unix://{}", socket(engine)));
    command
}

/// Returns the path of the engine's socket, which the lab must see too.
fn socket(engine: &Engine) -> String {
    engine.dir.join("docker.sock").to_string_lossy().into_owned()
}

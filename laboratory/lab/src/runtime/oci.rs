//! Runtimes that run a bundle: `crun` and `runc` (Open Container Initiative, Runtime Specification
//! 1.0).

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::devices::{self, Devices};
use super::engine::{Engine, Spec};
use super::state::FOLDER;
use crate::LabError;

/// Writes the bundle of a container and returns the command that runs it.
pub(super) fn run(engine: &Engine, spec: &Spec<'_>) -> Result<Command, LabError> {
    let bundle = format!("bundle-{}", spec.name);
    let folder = engine.dir.join(&bundle);
    let doing = LabError::doing(format!("bundle {}", folder.display()));
    fs::create_dir(&folder).map_err(doing)?;
    engine.dir.write(&format!("{bundle}/config.json"), &config(engine, spec).to_string())?;
    let mut command = engine.command(engine.runtime.name());
    command.arg("--root").arg(format!("{FOLDER}/{}", engine.runtime));
    command.arg("run").arg("--bundle").arg(folder).arg(spec.name);
    Ok(command)
}

fn config(engine: &Engine, spec: &Spec<'_>) -> Value {
    let capabilities = engine.capabilities();
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({ "type": kind }));
    let mount = |kind: &str, place: &str, options: &[&str]| json!({ "type": kind, "source": kind, "destination": place, "options": options });
    let mut mounts = vec![
        mount("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        mount("sysfs", "/sys", &["nosuid", "noexec", "nodev", "ro"]),
        mount("tmpfs", "/dev", &["nosuid", "mode=755", "size=64k"]),
    ];
    let bind = |from: &std::path::Path, to: &std::path::Path, how: &str| json!({ "type": "bind", "source": from, "destination": to, "options": ["bind", how] });
    mounts.extend(engine.image.files.iter().map(|(file, place)| bind(file, place, "ro")));
    let sockets = engine.sockets();
    mounts.push(bind(&sockets, &sockets, "rw"));
    let mut rules = vec![json!({ "allow": false, "access": "rwm" })];
    rules.extend(engine.devices.iter().map(|devices| {
        let mut rule = json!({ "allow": true, "type": "c", "access": "rwm" });
        rule["major"] = devices.major.into();
        devices.minor.into_iter().for_each(|minor| rule["minor"] = minor.into());
        rule
    }));
    let mut nodes = Vec::new();
    if !engine.devices.is_empty() {
        let Devices { major, minor } = devices::OF_TAP;
        nodes.push(json!({ "path": devices::TUN, "type": "c", "major": major, "minor": minor }));
    }
    json!({
        "ociVersion": "1.0.2",
        "hostname": spec.name,
        "root": { "path": engine.image.root, "readonly": true },
        "process": {
            "cwd": "/",
            "args": spec.command,
            "env": [],
            "user": { "uid": 0, "gid": 0 },
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
            },
        },
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
            "devices": nodes,
            "cgroupsPath": engine.group.join(spec.name),
            "resources": {
                "cpu": { "cpus": spec.cpus },
                "devices": rules,
            },
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/sched_debug", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"],
        },
    })
}

//! LXC, through its command line tools.

use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use super::engine::{Engine, Spec};
use super::state::FOLDER;
use super::{devices, network};
use crate::LabError;
use crate::process::calls;

/// Processes in the root of the cgroup v2 hierarchy. LXC creates its groups below the group of the
/// first process, here the "host", or below its own (`lxc.cgroup.relative`). In cgroup v2, a group
/// that contains processes, other than the root, cannot have children with controllers enabled.
const GROUP_ROOT: &str = "/sys/fs/cgroup/cgroup.procs";

/// Writes the configuration of a container (lxc.container.conf(5)) and returns the command that
/// runs it.
pub(super) fn run(engine: &Engine, spec: &Spec<'_>) -> Result<Command, LabError> {
    let name = spec.name;
    let mut command = engine.command("lxc-start");
    let is_version_2 = Path::new(GROUP_ROOT).exists();
    if is_version_2 {
        let processes = File::options().write(true).open(GROUP_ROOT);
        let processes = processes.map_err(LabError::doing(format!("opening {GROUP_ROOT}")))?;
        calls::join_group(&mut command, processes);
    }
    let configuration =
        engine.dir.write(&format!("{name}.conf"), &configuration(engine, spec, is_version_2))?;
    command.args(["--foreground", "--name", name, "--lxcpath", FOLDER]);
    command.arg("--rcfile").arg(configuration);
    command.args(["--logfile", "/dev/stderr", "--logpriority", "ERROR", "--"]).args(&spec.command);
    Ok(command)
}

fn configuration(engine: &Engine, spec: &Spec<'_>, is_version_2: bool) -> String {
    let group = engine.group.strip_prefix("/").unwrap_or(&engine.group);
    let capabilities = engine.capabilities();
    let capabilities =
        capabilities.iter().map(|name| name.strip_prefix("CAP_").unwrap_or(name).to_lowercase());
    let mut capabilities = capabilities.collect::<Vec<_>>().join(" ");
    if capabilities.is_empty() {
        capabilities = "none".to_owned();
    }
    let mut text = format!(
        "lxc.uts.name = {name}\n\
         lxc.rootfs.path = dir:{root}\n\
         lxc.rootfs.options = ro\n\
         lxc.mount.auto = proc:mixed sys:ro\n\
         lxc.autodev = 1\n\
         lxc.console.path = none\n\
         lxc.no_new_privs = 1\n\
         lxc.cap.keep = {capabilities}\n\
         lxc.cgroup.dir = {group}/{name}\n\
         lxc.cgroup.cpuset.cpus = {cpus}\n\
         lxc.cgroup2.cpuset.cpus = {cpus}\n",
        name = spec.name,
        root = engine.image.root.display(),
        group = group.display(),
        cpus = spec.cpus,
    );
    if is_version_2 {
        text.push_str("lxc.cgroup.relative = 1\n");
    }
    // LXC does not start if the kernel has AppArmor and the host has never loaded LXC's profile.
    if Path::new("/sys/module/apparmor").exists() {
        text.push_str("lxc.apparmor.profile = unconfined\n");
    }
    match (&engine.network, spec.address) {
        (Some(lines), Some(address)) => text += &(lines.clone() + &network::lxc_address(address)),
        _ => text += "lxc.net.0.type = empty\n",
    }
    let mut mount = |from: &Path, to: &Path, options: &str| {
        let to = to.strip_prefix("/").unwrap_or(to);
        let (from, to) = (from.display(), to.display());
        writeln!(text, "lxc.mount.entry = {from} {to} none bind,{options} 0 0").expect("memory");
    };
    for (file, place) in &engine.image.files {
        mount(file, place, "ro");
    }
    let sockets = engine.sockets();
    mount(&sockets, &sockets, "rw");
    // LXC allows every device whose node is mounted.
    if !engine.devices.is_empty() {
        mount(Path::new(devices::TUN), Path::new(devices::TUN), "create=file");
    }
    text
}

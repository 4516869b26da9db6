//! LXC, by its command line tools.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::state::FOLDER;
use super::{Engine, Spec, devices, network};
use crate::LabError;

/// The command that runs a container, after writing its configuration (lxc.container.conf(5)).
pub(super) fn run(engine: &Engine, spec: &Spec<'_>) -> Result<Command, LabError> {
    let name = spec.name;
    let configuration = engine.dir.write(&format!("{name}.conf"), &configuration(engine, spec))?;
    let mut command = engine.command("lxc-start");
    command.args(["--foreground", "--name", name, "--lxcpath", FOLDER]);
    command.arg("--rcfile").arg(configuration);
    command.args(["--logfile", "/dev/stderr", "--logpriority", "ERROR", "--"]).args(&spec.command);
    Ok(command)
}

fn configuration(engine: &Engine, spec: &Spec<'_>) -> String {
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
    // Where the kernel has AppArmor, and a host that never loaded LXC's profile, LXC would not start.
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
    // It allows all devices whose nodes there are.
    if !engine.devices.is_empty() {
        mount(Path::new(devices::TUN), Path::new(devices::TUN), "create=file");
    }
    text
}

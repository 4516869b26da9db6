//! `dray cdi`: ports of a switch as devices of container runtimes.

use std::path::PathBuf;

use anyhow::Context;
use dray_cni::cdi::{self, Device, Devices, Specification};
use dray_cni::{Attachment, Records};
use dray_switch::PortConfig;
use dray_switch::client::Client;
use dray_switch::config::{CONTROL, Name};
use dray_text::table;

use crate::common::{Failure, print, print_json, usage};
use crate::control::{Control, refused};

/// Make ports of a running switch devices that container runtimes mount (CDI).
///
/// Writes one file, which then has these devices and no others. A device is the directory of a
/// port's socket, at the same path in the container: read-only if the switch creates the socket.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Make only this port a device; may be repeated [default: all with a directory of their own].
    #[arg(long = "port", value_name = "NAME")]
    ports: Vec<Name>,
    /// Directory for the file; runtimes read /etc/cdi and /var/run/cdi.
    #[arg(long, value_name = "DIRECTORY", default_value = cdi::FOLDER)]
    output: PathBuf,
    /// Remove the file.
    #[arg(long, conflicts_with_all = ["ports", "json", "control"])]
    remove: bool,
    /// Write the specification to standard output instead of the file.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    control: Control,
}

const EXAMPLES: &str = "\
Examples:
  dray switch add-port web 'vhost:/run/dray/web/vhost.sock?mode=0666'
  dray cdi                                            /var/run/cdi/dray.dev-port.json
  podman run --device dray.dev/port=web IMAGE dray receive --port virtio:/run/dray/web/vhost.sock
  dray cdi --port web --output /etc/cdi
  dray cdi --remove";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { ports, output, remove, json, control } = arguments;
    let devices = if *remove { Vec::new() } else { devices(ports, control)? };
    let specification = Specification::of_ports(devices);
    if *json {
        return print_json(&specification.to_json());
    }
    specification.save(output).with_context(|| format!("--output {}", output.display()))?;
    let row = |device: &Device| {
        let mount = &device.mounts[0];
        let access = if mount.read_only { "read-only" } else { "writable" };
        let directory = mount.host.display().to_string();
        vec![specification.qualified_name(device), directory, access.to_owned()]
    };
    match specification.devices() {
        [] => Ok(()),
        devices => print(&table(&["device", "directory", "access"], devices.iter().map(row), 3)),
    }
}

/// Returns the devices for the ports called `names`, or for all ports.
fn devices(names: &[Name], control: &Control) -> Result<Vec<Device>, Failure> {
    let control = control.socket(CONTROL, "dray switch")?;
    let ports = Client::new(&control).ports().map_err(refused)?;
    let ports: Vec<PortConfig> = ports.into_iter().map(|port| port.config).collect();
    let mut attachments = Records::default().all()?;
    attachments.retain(|attachment: &Attachment| attachment.control == control);
    let Devices { mut devices, problems } = cdi::devices(&attachments, &ports);
    for name in names {
        if let Some((_, why)) = problems.iter().find(|(port, _)| port == name) {
            return Err(usage!("--port {name}: {why}"));
        }
        if !devices.iter().any(|device| name == device.name.as_str()) {
            return Err(usage!("--port {name}: no such port; `dray switch ports` lists them"));
        }
    }
    if names.is_empty() {
        for (name, why) in problems {
            eprintln!("dray: port {name} is no device: {why}");
        }
    } else {
        devices.retain(|device| names.iter().any(|name| name == device.name.as_str()));
    }
    Ok(devices)
}

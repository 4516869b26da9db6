//! `dray cni`: the plugin for container runtimes, and what an operator can do with its records.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use dray_cni::{Attachment, Output, Records, Restored};
use dray_switch::config::CONTROL;
use dray_text::table;

use crate::common::{Failure, print, print_json};
use crate::control::Control;

/// Give containers ports of a switch: the CNI plugin `dray-cni`, which container runtimes call.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ln -s /usr/local/bin/dray /opt/cni/bin/dray-cni     install the plugin
  cat > /etc/cni/net.d/10-dray.conflist <<'END'
  {\"cniVersion\": \"1.1.0\", \"name\": \"dray\", \"plugins\": [{
    \"type\": \"dray-cni\", \"kind\": \"tap\", \"mtu\": 1500,
    \"ipam\": {\"type\": \"host-local\", \"ranges\": [[{\"subnet\": \"10.88.0.0/16\"}]]}}]}
  END
  dray cni list                                       the containers that have ports

Kinds: tap (plain sockets, the default), memif, virtio (dray's own port), vhost (DPDK, QEMU).
  Keys: kind, port, vlan, trunk, native, group, mac, moveMac, spoofCheck, mtu, queues, rate, control.
  docs/containers.md explains them.";

#[derive(Subcommand)]
enum Command {
    /// List the containers with their ports.
    #[command(after_help = "Examples:\n  dray cni list\n  dray cni list --json")]
    List(List),
    /// Give a switch that was restarted without privileges the ports of containers again.
    #[command(after_help = "\
Examples:
  dray cni restore
  dray cni restore --control /run/dray/tenant.sock")]
    Restore(Control),
    /// Copy this program into a directory as the plugin `dray-cni`, in place of the one there,
    /// which may be running: for an image without a shell.
    #[command(after_help = "Examples:\n  dray cni install /opt/cni/bin")]
    Install {
        /// Directory of the runtime's plugins.
        directory: PathBuf,
    },
}

#[derive(clap::Args)]
struct List {
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Name of the program as a plugin of a container runtime.
const PLUGIN: &str = "dray-cni";
/// Name of the program as a netavark plugin.
pub(crate) const NETAVARK: &str = "dray-netavark";

/// Returns the command line, with `dray-cni` as `dray cni`, and so on; `None` if a container
/// runtime calls the plugin: under that name, or, if the program has another name, without
/// arguments.
pub(crate) fn command_line() -> Option<Vec<std::ffi::OsString>> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let name = words.first().map(std::path::Path::new).and_then(std::path::Path::file_name);
    let is_plugin = name.is_some_and(|name| name == PLUGIN);
    let is_netavark = name.is_some_and(|name| name == NETAVARK);
    if words.len() <= 1 && (is_plugin || std::env::var_os("CNI_COMMAND").is_some()) {
        return None;
    }
    if is_plugin {
        words.splice(..1, ["dray".into(), "cni".into()]);
    } else if is_netavark {
        words.splice(..1, ["dray".into(), "netavark".into()]);
    }
    Some(words)
}

/// Maximum length of a plugin's input, in bytes.
const INPUT_MAX: u64 = 4 << 20;

/// Carries out the request of a container runtime.
pub(crate) fn plugin() -> ExitCode {
    let get = |name: &str| std::env::var(name).ok();
    reply(PLUGIN, |input| dray_cni::run(&Records::default(), &get, input))
}

/// Reads the input of the plugin `name`, and writes what `run` returns for it.
pub(crate) fn reply(name: &str, run: impl FnOnce(&[u8]) -> Output) -> ExitCode {
    let mut input = Vec::new();
    if let Err(error) = io::stdin().take(INPUT_MAX).read_to_end(&mut input) {
        eprintln!("{name}: standard input: {error}");
        return ExitCode::FAILURE;
    }
    let output = run(&input);
    match io::stdout().write_all(output.text.as_bytes()) {
        Ok(()) => ExitCode::from(output.status),
        Err(_) => ExitCode::FAILURE,
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let records = Records::default();
    match &arguments.command {
        Command::List(List { json }) => {
            let all = records.all()?;
            if *json { print_json(&all) } else { print(&show(&all)) }
        }
        Command::Install { directory } => Ok(install(directory)?),
        Command::Restore(control) => {
            let control = control.socket(CONTROL, "dray switch")?;
            let Restored { added, problems } = dray_cni::restore(&records, &control);
            for port in &added {
                print(&format!("{}\n", port.name))?;
            }
            match problems.as_slice() {
                [] => Ok(()),
                problems => Err(anyhow::anyhow!("{}", problems.join("; ")).into()),
            }
        }
    }
}

/// Copies this program into `directory`. The plugin there is always a complete one.
fn install(directory: &Path) -> anyhow::Result<()> {
    let unfinished = directory.join(format!(".{PLUGIN}"));
    let copy = || {
        fs::copy("/proc/self/exe", &unfinished)?;
        fs::rename(&unfinished, directory.join(PLUGIN))
    };
    copy().map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        anyhow::anyhow!("{}: {error}", directory.display())
    })
}

fn show(attachments: &[Attachment]) -> String {
    let row = |attachment: &Attachment| {
        vec![
            attachment.container.clone(),
            attachment.interface.clone(),
            attachment.network.clone(),
            attachment.kind.name().to_owned(),
            attachment.port.name.to_string(),
            attachment.port.macs.first().map(ToString::to_string).unwrap_or_default(),
        ]
    };
    let rows = attachments.iter().map(row);
    table(&["container", "interface", "network", "kind", "port", "address"], rows, 6)
}

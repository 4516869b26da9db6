//! `dray docker-plugin` and `dray netavark`: ports of a switch for Docker and Podman.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Subcommand;
use dray_cni::{Docker, Netavark, Records};
use dray_daemon::{ControlAddress, ControlSocket, FAREWELL, Limits, Server};
use dray_datapath::Cancel;
use dray_sandbox::CapabilitySet;
use dray_socket::Place;
use tracing::info;

use crate::cni::{NETAVARK, reply};
use crate::common::{Failure, cancel_on_signals};
use crate::log::LogArguments;

/// Give Docker containers ports of a switch: a Docker network driver.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray switch &
  dray docker-plugin &
  docker network create --driver dray --subnet 10.90.0.0/16 fast
  docker network create --driver dray --subnet 10.91.0.0/16 -o vlan=10 -o mtu=9000 red
  docker run --network fast debian

Options of a network (-o KEY=VALUE): control, defaultRoute, group, mtu, native, queues, rate,
  spoofCheck, trunk, vlan. docs/containers.md explains them.")]
pub(crate) struct DockerArguments {
    /// Socket at which Docker finds the driver; the name of its file is the driver's.
    #[arg(long, value_name = "PATH", default_value = "/run/docker/plugins/dray.sock")]
    socket: ControlAddress,
    /// Directory of the networks, which Docker describes only when it creates them.
    #[arg(long, value_name = "PATH", default_value = "/var/lib/dray/docker")]
    state: PathBuf,
    #[command(flatten)]
    log: LogArguments,
}

/// Give Podman containers ports of a switch: the plugin `dray-netavark`, which netavark calls.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  mkdir -p /usr/local/lib/netavark
  ln -s /usr/local/bin/dray /usr/local/lib/netavark/dray-netavark
  podman network create --driver dray-netavark --subnet 10.92.0.0/16 fast
  podman network create --driver dray-netavark --ipam-driver none -o kind=memif packets
  podman run --network fast debian

Options of a network (-o KEY=VALUE): control, defaultRoute, group, kind (tap, memif, virtio), mtu,
  native, queues, rate, spoofCheck, trunk, vlan. docs/containers.md explains them.")]
pub(crate) struct NetavarkArguments {
    #[command(subcommand)]
    command: NetavarkCommand,
}

#[derive(Subcommand)]
enum NetavarkCommand {
    /// Check and complete a new network, which is read from standard input.
    #[command(after_help = "Examples:\n  dray netavark create < network.json")]
    Create,
    /// Attach a container to a network; both are read from standard input.
    #[command(after_help = "Examples:\n  dray netavark setup /run/netns/one < container.json")]
    Setup {
        /// File of the container's network namespace.
        netns: PathBuf,
    },
    /// Detach a container from a network; both are read from standard input.
    #[command(after_help = "Examples:\n  dray netavark teardown /run/netns/one < container.json")]
    Teardown {
        /// File of the container's network namespace.
        netns: PathBuf,
    },
    /// Report versions.
    #[command(after_help = "Examples:\n  dray netavark info")]
    Info,
}

pub(crate) fn docker(arguments: DockerArguments) -> Result<(), Failure> {
    let DockerArguments { socket, state, log } = arguments;
    log.start()?;
    let cancel = cancel_on_signals()?;
    dray_daemon::watch_threads();
    dray_daemon::announce_failures();
    dray_port::survive_truncation()?;
    // Docker creates it when it starts, which may be later.
    Place::making(&socket.path)
        .map_err(|error| anyhow::anyhow!("{}: {error}", socket.path.display()))?;
    let bound = ControlSocket::bind(&socket)?;
    // For interfaces, the namespaces of containers, and the bypass. Everything else belongs to
    // root.
    let kept = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN | CapabilitySet::BPF;
    dray_sandbox::keep_capabilities(kept)?;
    let docker = Docker::new(Records::default(), state);
    let server = Server::start(bound, Limits::default(), move |request| docker.answer(&request));
    let path = socket.path.display();
    info!("Docker finds the driver at {path}");
    while cancel.check().is_ok() {
        if let Some(why) = dray_daemon::failure() {
            thread::sleep(FAREWELL);
            dray_daemon::exit(why);
        }
        thread::sleep(Cancel::INTERVAL);
    }
    drop(server);
    Ok(())
}

pub(crate) fn netavark(arguments: NetavarkArguments) -> ExitCode {
    let run = |command, input: &[u8]| dray_cni::netavark(&Records::default(), &command, input);
    let command = match arguments.command {
        NetavarkCommand::Create => Netavark::Create,
        NetavarkCommand::Setup { netns } => Netavark::Setup(netns),
        NetavarkCommand::Teardown { .. } => Netavark::Teardown,
        // It has no input.
        NetavarkCommand::Info => {
            let _ = io::stdout().write_all(run(Netavark::Info, b"").text.as_bytes());
            return ExitCode::SUCCESS;
        }
    };
    reply(NETAVARK, |input| run(command, input))
}

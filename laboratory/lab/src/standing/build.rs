//! Builds a lab from a topology.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dray_daemon::CONTROL_DIR;

use super::program::{self, Program};
use super::{CommandEnd, ContainerState, LabState, PortState, PortTraffic, end};
use crate::lab::HOST as HOST_ID;
use crate::link::{Attachment, EndKind, LinkOptions, netmap_uri};
use crate::peer::SWITCH_CONTROL;
use crate::process::PeerDir;
use crate::topology::{EndPlan, HOST, LinkPlan, Topology};
use crate::{Cancel, Container, ContainerId, End, Lab, LabError, Placement, placement};

/// A lab, and the topology that it was built from.
pub(super) struct Built {
    /// Declared before the programs: dropping the lab ends them.
    lab: Lab,
    topology: Topology,
    /// Names and IDs, in the topology's order.
    containers: Vec<(String, ContainerId)>,
    /// Ends, by link.
    ends: Vec<Vec<End>>,
    programs: Vec<Program>,
}

impl Built {
    /// Creates containers and links, and starts the commands in `folder`, as the containers see it.
    pub(super) fn new(
        mut lab: Lab,
        topology: Topology,
        program: &Path,
        folder: &Path,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let mut containers = vec![(HOST.to_owned(), HOST_ID)];
        for plan in &topology.containers {
            let cpus = if plan.cpus.is_empty() { placement::allowed() } else { plan.cpus.clone() };
            containers.push((plan.name.clone(), lab.start_container(&plan.name, &cpus)?));
        }
        lab.wait_until_up()?;
        let mut built = Self { lab, topology, containers, ends: Vec::new(), programs: Vec::new() };
        for number in 0..built.topology.links.len() {
            let ends = built.link(number)?;
            built.ends.push(ends);
        }
        built.make_control_dirs()?;
        built.start_programs(program, folder)?;
        program::wait_until_working(&built.programs, cancel)?;
        Ok(built)
    }

    fn id(&self, name: &str) -> ContainerId {
        let mut all = self.containers.iter();
        all.find(|(other, _)| other == name).expect("links were checked").1
    }

    fn link(&mut self, number: usize) -> Result<Vec<End>, LabError> {
        let plan = &self.topology.links[number];
        let ids: Vec<_> = plan.ends.iter().map(|end| self.id(&end.container)).collect();
        // For an odd end, the host is the other end.
        let pairs: Vec<_> =
            ids.chunks(2).map(|pair| [pair[0], *pair.get(1).unwrap_or(&HOST_ID)]).collect();
        let of_card = self.topology.links.iter().filter(|link| link.parent == plan.parent);
        let options = LinkOptions {
            has_programs: plan.xdp_programs,
            has_machines: plan.kind.end() == EndKind::Machine,
            functions: of_card.map(|link| link.ends.len().next_multiple_of(2)).sum(),
            switch_cpu: plan.cpu.unwrap_or_else(|| Placement::of_this_process().assign(1)[0].id),
            ..LinkOptions::of_mtu(plan.mtu)
        };
        plan.parent.iter().for_each(|card| self.lab.use_card(card, &plan.functions));
        let links = self.lab.link(plan.kind, &pairs, options)?;
        let ends = links.into_iter().flat_map(|link| link.ends).take(ids.len());
        let ends: Vec<_> = ends.collect();
        for (plan_of_end, end) in plan.ends.iter().zip(&ends) {
            let (Some(network), Some(address)) = (plan.network, plan_of_end.address) else {
                continue;
            };
            let doing = |error| {
                let what = format!("address {address} of container {}", plan_of_end.container);
                LabError::doing(what)(error)
            };
            let netlink = self.lab[end.container].netlink();
            let index = netlink.interface(end.interface().expect("checked")).map_err(doing)?.index;
            netlink.add_address(index, address, network.prefix_len()).map_err(doing)?;
        }
        Ok(ends)
    }

    /// Makes the directories of control sockets. The links' own switch listens in the lab's
    /// directory; the host's directory has a link to its socket.
    fn make_control_dirs(&mut self) -> Result<(), LabError> {
        let dir = self.lab.dir()?;
        let doing = || LabError::doing("directories of control sockets");
        for number in 0..self.containers.len() {
            fs::create_dir(control_dir(&dir, number)).map_err(doing())?;
        }
        let switch = dir.join(SWITCH_CONTROL);
        if switch.exists() {
            let link = control_dir(&dir, 0).join("switch.sock");
            std::os::unix::fs::symlink(switch, link).map_err(doing())?;
        }
        Ok(())
    }

    /// Starts the commands in the order of the file.
    fn start_programs(&mut self, program: &Path, folder: &Path) -> Result<(), LabError> {
        let dir = self.lab.dir()?;
        for (number, plan) in self.topology.containers.clone().into_iter().enumerate() {
            let Some(run) = plan.run else { continue };
            let log = dir.join(&format!("run-{}.log", plan.name));
            let mut command = Command::new("/bin/sh");
            // The thread is looked up in the child itself, so the command must replace the shell.
            let exec = if program::working_thread(&run).is_some() { "exec " } else { "" };
            command.arg("-c").arg(format!("{exec}{run}"));
            command.current_dir(folder).env("PATH", path_with(program));
            command.envs(self.environment(&plan.name));
            // Number 0 is the host.
            command.env(CONTROL_DIR, control_dir(&dir, number + 1));
            let container = &self.lab[self.id(&plan.name)];
            self.programs.push(Program::start(container, run, command, log)?);
        }
        Ok(())
    }

    /// Ends all processes in the containers but the first ones, and returns how the commands ended.
    pub(super) fn end(&self) -> Vec<CommandEnd> {
        let containers = self.containers.iter().map(|(_, id)| self.lab[*id].pid());
        end::end(&containers.collect::<Vec<_>>(), &self.programs)
    }

    /// Returns the state of the lab, for clients.
    pub(super) fn state(&self, dir: &PeerDir, name: &str, file: &str, text: &str) -> LabState {
        let state = |(number, (name, id)): (usize, &(String, ContainerId))| {
            let container = &self.lab[*id];
            let program = self.programs.iter().find(|program| program.container == *name);
            let ports = self.ports(name);
            ContainerState {
                name: name.clone(),
                pid: container.pid().as_raw_nonzero().get(),
                running: container.is_running(),
                cpus: self.cpus(name),
                control: control_dir(dir, number),
                ports: ports.map(|(n, link, plan, end)| self.port(n, link, plan, end)).collect(),
                program: program.map(Program::state),
            }
        };
        LabState {
            name: name.to_owned(),
            file: file.to_owned(),
            text: text.to_owned(),
            keeper: std::process::id(),
            containers: self.containers.iter().enumerate().map(state).collect(),
        }
    }

    fn cpus(&self, name: &str) -> String {
        let plan = self.topology.containers.iter().find(|plan| plan.name == name);
        match plan {
            Some(plan) if !plan.cpus.is_empty() => placement::ranges(&plan.cpus),
            _ => placement::ranges(&placement::allowed()),
        }
    }

    /// Returns a container's ends of links: the number of the link, its plan, and the planned and
    /// the created end.
    fn ports<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (usize, &'a LinkPlan, &'a EndPlan, &'a End)> {
        let links = self.topology.links.iter().zip(&self.ends).enumerate();
        links.flat_map(move |(number, (link, ends))| {
            let here = link.ends.iter().zip(ends).filter(move |(plan, _)| plan.container == name);
            here.map(move |(plan, end)| (number, link, plan, end))
        })
    }

    fn port(&self, number: usize, link: &LinkPlan, plan: &EndPlan, end: &End) -> PortState {
        let container: &Container = &self.lab[end.container];
        let interface = end.interface().and_then(|name| container.netlink().interface(name).ok());
        PortState {
            name: name(&end.attachment),
            uri: uri(link, &end.attachment),
            kind: link.kind.to_string(),
            link: number + 1,
            mac: end.mac.to_string(),
            address: address(link, plan, end),
            running: end
                .interface()
                .map(|_| interface.as_ref().is_some_and(|found| found.is_running)),
            traffic: interface.map(|found| PortTraffic {
                rx_packets: found.counters.rx_packets,
                rx_bytes: found.bytes[0],
                tx_packets: found.counters.tx_packets,
                tx_bytes: found.bytes[1],
                tx_dropped: found.counters.tx_dropped,
            }),
            environment: self.variables(number, plan, end),
        }
    }

    /// Returns the environment of commands in a container.
    fn environment(&self, container: &str) -> BTreeMap<String, String> {
        let ports = self.ports(container);
        ports.flat_map(|(number, _, plan, end)| self.variables(number, plan, end)).collect()
    }

    fn variables(&self, number: usize, plan: &EndPlan, end: &End) -> BTreeMap<String, String> {
        let link = &self.topology.links[number];
        let bare = |address: String| address.split('/').next().unwrap_or_default().to_owned();
        let mut variables =
            vec![("PORT", uri(link, &end.attachment)), ("MAC", end.mac.to_string())];
        variables.extend(address(link, plan, end).map(|address| ("ADDRESS", bare(address))));
        let ends = || link.ends.iter().zip(&self.ends[number]);
        if let (2, Some((other_plan, other))) =
            (link.ends.len(), ends().find(|(other, _)| other.container != plan.container))
        {
            variables.push(("PEER_MAC", other.mac.to_string()));
            let address = address(link, other_plan, other);
            variables.extend(address.map(|address| ("PEER_ADDRESS", bare(address))));
        }
        let port = plan.port;
        variables.into_iter().map(|(name, value)| (format!("{name}{port}"), value)).collect()
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // On every path, an error included: a killed program would leave its sockets behind.
        self.end();
    }
}

/// Returns the directory of a container's control sockets. A number keeps it short for socket
/// addresses, whatever the container's name.
fn control_dir(dir: &PeerDir, number: usize) -> PathBuf {
    dir.join(&format!("c{number}"))
}

/// Returns the search path for commands in containers. The directory of `program` comes first, so
/// that `dray` is the program that created the containers.
pub fn path_with(program: &Path) -> OsString {
    let mut path = program.parent().unwrap_or(Path::new("/")).as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into()));
    path
}

fn name(attachment: &Attachment) -> String {
    match attachment {
        Attachment::Interface(name)
        | Attachment::Tap(name)
        | Attachment::Netmap(name)
        | Attachment::Function(name) => name.clone(),
        Attachment::Driver(path)
        | Attachment::Device(path)
        | Attachment::Memif(path)
        | Attachment::Datagrams { here: path, .. } => path.display().to_string(),
    }
}

fn uri(link: &LinkPlan, attachment: &Attachment) -> String {
    let name = name(attachment);
    match attachment {
        Attachment::Interface(_) if link.kind.end() == EndKind::Machine => format!("tap:{name}"),
        Attachment::Tap(_) => format!("tap:{name}"),
        Attachment::Interface(_) => format!("raw:{name}"),
        Attachment::Driver(_) => format!("virtio:{name}"),
        Attachment::Device(_) => format!("vhost:{name}"),
        Attachment::Memif(_) => format!("memif:{name}"),
        Attachment::Netmap(_) => netmap_uri(&name),
        Attachment::Function(_) => unreachable!("functions of standing labs have interfaces"),
        Attachment::Datagrams { there, .. } => format!("unix:{name}?peer={}", there.display()),
    }
}

/// Returns the planned address, or the address that the lab assigned if the kind needs one.
fn address(link: &LinkPlan, plan: &EndPlan, end: &End) -> Option<String> {
    let own = || {
        let needs = link.kind.carries == crate::link::Carries::OwnIp;
        needs.then(|| format!("{}/{}", end.ip, crate::link::PREFIX_LEN))
    };
    link.address(plan).or_else(own)
}

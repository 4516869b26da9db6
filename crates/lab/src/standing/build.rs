//! Builds a lab from a topology.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use dray_daemon::CONTROL_DIR;

use super::{ContainerState, LabState, PortState, ProgramState};
use crate::join::run_in;
use crate::lab::HOST as HOST_ID;
use crate::link::{Attachment, LinkOptions};
use crate::peer::SWITCH_CONTROL;
use crate::process::PeerDir;
use crate::topology::{self, EndPlan, HOST, LinkPlan, Topology};
use crate::{Cancel, Container, ContainerId, End, Lab, LabError, Placement, placement};

/// Time limit for the programs to open their ports.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// A command started in a container.
struct Program {
    container: String,
    run: String,
    log: PathBuf,
    pid: Arc<OnceLock<u32>>,
    ended: Arc<OnceLock<String>>,
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
        built.wait_for_ports(cancel)?;
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
        let options = LinkOptions {
            mtu: plan.mtu,
            addressed: false,
            has_programs: plan.xdp_programs,
            has_machines: plan.kind.takes_only_machines(),
            switch_cpu: plan.cpu.unwrap_or_else(|| Placement::of_this_process().assign(1)[0].id),
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
            let doing = |error| LabError::doing(format!("log {}", log.display()))(error);
            let output = File::create(&log).map_err(doing)?;
            let mut command = Command::new("/bin/sh");
            // The thread is looked up in the child itself, so the command must replace the shell.
            let exec = if working_thread(&run).is_some() { "exec " } else { "" };
            command.arg("-c").arg(format!("{exec}{run}"));
            command.current_dir(folder).env("PATH", path_with(program));
            command.envs(self.environment(&plan.name));
            // Number 0 is the host.
            command.env(CONTROL_DIR, control_dir(&dir, number + 1));
            command.stdin(Stdio::null()).stderr(output.try_clone().map_err(doing)?).stdout(output);
            let (pid, ended) = (Arc::default(), Arc::default());
            start(self.lab[self.id(&plan.name)].pid(), command, &pid, &ended);
            self.programs.push(Program { container: plan.name, run, log, pid, ended });
        }
        Ok(())
    }

    /// Waits until the `dray` commands have opened their ports.
    fn wait_for_ports(&self, cancel: &Cancel) -> Result<(), LabError> {
        let deadline = Instant::now() + PATIENCE;
        for program in &self.programs {
            let Some(thread) = working_thread(&program.run) else { continue };
            let failed = |what: String| LabError::Container {
                container: program.container.clone(),
                what: format!("{}: {what}", program.run),
            };
            while !program.pid.get().is_some_and(|&pid| has_thread(pid, thread)) {
                match program.ended.get().map(String::as_str) {
                    Some(SUCCESS) => break,
                    Some(ended) => {
                        let said = fs::read_to_string(&program.log).unwrap_or_default();
                        let last = said.lines().last().unwrap_or_default();
                        return Err(failed(format!("{ended}: {last}")));
                    }
                    None if Instant::now() > deadline => {
                        return Err(failed(format!(
                            "no port opened within {} s",
                            PATIENCE.as_secs()
                        )));
                    }
                    None => cancel.sleep_until(Instant::now() + Duration::from_millis(2))?,
                }
            }
        }
        Ok(())
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
            running: end.interface().map(|_| interface.is_some_and(|found| found.is_running)),
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

impl Program {
    fn state(&self) -> ProgramState {
        ProgramState {
            run: self.run.clone(),
            ended: self.ended.get().cloned(),
            log: self.log.display().to_string(),
        }
    }
}

const SUCCESS: &str = "exit status 0";

/// Starts a command on its own thread, which waits for its end.
fn start(
    container: rustix::process::Pid,
    mut command: Command,
    pid: &Arc<OnceLock<u32>>,
    ended: &Arc<OnceLock<String>>,
) {
    let (pid, ended) = (pid.clone(), ended.clone());
    thread::spawn(move || {
        let outcome = run_in(container, &mut command, |mut child| {
            let _ = pid.set(child.id());
            child.wait()
        });
        let _ = ended.set(match outcome {
            Ok(Ok(status)) => describe(status),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        });
    });
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// Name of the thread that exists once a plain `dray` call has opened its ports; `None` for any
/// other command line.
fn working_thread(run: &str) -> Option<&'static str> {
    match topology::dray_call(run)?.get(1)?.as_str() {
        "send" | "receive" | "forward" | "echo" | "ping" | "upf-load" => Some("role"),
        "upf" => Some("upf-neighbours"),
        _ => None,
    }
}

fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|found| found.trim_end() == name)
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
        Attachment::Interface(name) | Attachment::Tap(name) => name.clone(),
        Attachment::Driver(path)
        | Attachment::Device(path)
        | Attachment::Memif(path)
        | Attachment::Datagrams { here: path, .. } => path.display().to_string(),
    }
}

fn uri(link: &LinkPlan, attachment: &Attachment) -> String {
    let name = name(attachment);
    match attachment {
        Attachment::Interface(_) if link.kind.takes_only_machines() => format!("tap:{name}"),
        Attachment::Tap(_) => format!("tap:{name}"),
        Attachment::Interface(_) => format!("raw:{name}"),
        Attachment::Driver(_) => format!("virtio:{name}"),
        Attachment::Device(_) => format!("vhost:{name}"),
        Attachment::Memif(_) => format!("memif:{name}"),
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

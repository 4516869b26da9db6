//! A lab: the containers of one experiment and the "host" between them.

use std::any::Any;
use std::fs::File;
use std::io;
use std::ops::{Index, IndexMut};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use dray_sockmap::Shortcut;

use crate::cgroup::{self, LabGroup};
use crate::container::Starting;
use crate::link::{self, Functions, Place};
use crate::peer::{PeerDir, PeerPort, PeerSwitch, Record, SwitchKind, SwitchSettings, Wiring};
use crate::runtime::network::{self, Network};
use crate::runtime::{Engine, Privileges};
use crate::{Cancel, Container, ContainerId, LabError, LinkKind, Runtime, cache, peer, placement};

/// Containers and links. Dropping it removes all of them.
pub struct Lab {
    program: PathBuf,
    cancel: Cancel,
    runtime: Runtime,
    privileges: Privileges,
    /// Ready from the first container on that it makes.
    pub(crate) engine: Option<Engine>,
    /// The network that it shall make, and its MTU.
    network: Option<(LinkKind, u32)>,
    group: LabGroup,
    has_control_groups: bool,
    containers: Vec<Container>,
    starting: Vec<Starting>,
    links: u32,
    /// How long it took to make them.
    pub(crate) linking: Duration,
    switch: Option<PeerSwitch>,
    shortcut: Option<Shortcut>,
    /// What links need for as long as they are there.
    held: Vec<Box<dyn Any>>,
    /// The network card that containers may get functions of, and what those are to be.
    card: Option<(String, Functions)>,
    /// Where sockets are, once there are some.
    dir: Option<PeerDir>,
}

pub(crate) const HOST: ContainerId = ContainerId(0);

impl Lab {
    /// An empty lab, after removing what labs left that were killed. `program` is the `dray` that
    /// runs inside the containers. The containers die with the calling thread.
    pub fn new(program: PathBuf, cancel: Cancel) -> Result<Self, LabError> {
        Self::with_runtime(program, Runtime::Embedded, &[], cancel)
    }

    /// The same, with containers made by `runtime`. An engine gives them `privileges` and no others; the
    /// embedded runtime leaves them all that the lab has.
    pub fn with_runtime(
        program: PathBuf,
        runtime: Runtime,
        privileges: Privileges,
        cancel: Cancel,
    ) -> Result<Self, LabError> {
        clean()?;
        let mut lab = Self {
            program,
            cancel,
            runtime,
            privileges,
            engine: None,
            network: None,
            group: LabGroup::new(),
            has_control_groups: true,
            containers: Vec::new(),
            starting: Vec::new(),
            links: 0,
            linking: Duration::ZERO,
            switch: None,
            shortcut: None,
            held: Vec::new(),
            card: None,
            dir: None,
        };
        lab.starting.push(Starting::new(&lab.program, "host", &placement::allowed())?);
        lab.wait_until_up()?;
        Ok(lab)
    }

    /// Joins all containers, of which there is none yet, by a network that their engine makes; `kind` is
    /// one of [`LinkKind::OF_ENGINES`]. [`link`](Self::link) finds it.
    pub fn have_network(&mut self, kind: LinkKind, mtu: u32) {
        assert_eq!(kind.runtime(), Some(self.runtime), "{kind} is another runtime's");
        assert!(self.engine.is_none(), "before the first container");
        self.network = Some((kind, mtu));
    }

    pub(crate) fn network(&self) -> Option<(LinkKind, u32)> {
        self.network
    }

    /// Starts a container on the given CPUs. Several come up at the same time: call
    /// [`wait_until_up`](Self::wait_until_up) after the last one, and before any is used.
    pub fn start_container(&mut self, name: &str, cpus: &[usize]) -> Result<ContainerId, LabError> {
        self.cancel.check()?;
        let id = ContainerId(self.containers.len() + self.starting.len());
        let starting = match self.runtime {
            Runtime::Embedded => Starting::new(&self.program, name, cpus)?,
            _ => self.start_by_engine(id, name, cpus)?,
        };
        self.starting.push(starting);
        Ok(id)
    }

    fn start_by_engine(
        &mut self,
        id: ContainerId,
        name: &str,
        cpus: &[usize],
    ) -> Result<Starting, LabError> {
        let dir = self.dir()?;
        if self.engine.is_none() {
            self.engine = Some(self.start_engine(dir.clone())?);
        }
        let engine = self.engine.as_ref().expect("it was started");
        let address = self.network.map(|_| network::address(id));
        Starting::by_engine(engine, self.host(), &dir, name, cpus, address)
    }

    fn start_engine(&self, dir: PeerDir) -> Result<Engine, LabError> {
        let host = self.host().init();
        let mut engine = Engine::start(
            self.runtime,
            &self.program,
            self.privileges,
            host,
            dir,
            self.group.path(),
            &self.cancel,
        )?;
        if let Some((kind, mtu)) = self.network {
            let (_, driver) = kind.engine().expect("checked when it was asked for");
            let base = link::engine::make_base(self, kind, mtu)?;
            let network = Network { driver, base: base.as_deref(), mtu };
            engine.make_network(network, host, &self.cancel)?;
        }
        Ok(engine)
    }

    /// Waits until every container is set up inside.
    pub fn wait_until_up(&mut self) -> Result<(), LabError> {
        for starting in std::mem::take(&mut self.starting) {
            let (container, cpus) = starting.wait_until_there(&self.cancel)?;
            let id = ContainerId(self.containers.len());
            self.containers.push(container);
            self.wait_until_set_up(id)?;
            let container = &self[id];
            let (name, pid) = (container.name(), container.pid());
            self.has_control_groups &= if container.is_by_engine() {
                self.group.holds(pid)
            } else {
                let doing = LabError::doing(format!("control group of container {name}"));
                self.group.add(name, pid, &placement::ranges(&cpus)).map_err(doing)?
            };
        }
        Ok(())
    }

    /// The engine that made the containers, where one did: its version, and the capabilities that it
    /// gave them.
    pub fn engine(&self) -> Option<(&str, Vec<&'static str>)> {
        self.engine.as_ref().map(|engine| (engine.version(), engine.capabilities()))
    }

    /// Whether every container is in a control group of its own. A host may refuse that, as some
    /// container runtimes do; the containers are pinned by their CPU affinity alone then.
    pub fn has_control_groups(&self) -> bool {
        self.has_control_groups
    }

    /// Short-cuts every TCP connection that is made between containers from now on by a BPF socket
    /// map. Call it when all of them are there.
    pub fn short_cut_tcp(&mut self) -> Result<(), LabError> {
        let containers = self.containers.iter().map(|c| (c.name(), c.pid()));
        let doing = |what: &str| LabError::doing(format!("short cut for TCP: {what}"));
        let group = self.group.version_2(containers).map_err(doing("control group"))?;
        let group = File::open(group).map_err(doing("control group"))?;
        let shortcut = Shortcut::attach(group.as_fd()).map_err(io::Error::other);
        self.shortcut = Some(shortcut.map_err(doing("BPF"))?);
        Ok(())
    }

    /// How long it took to make all links, with their switch.
    pub fn linking_took(&self) -> Duration {
        self.linking
    }

    /// Keeps what a link needs as long as the lab.
    pub(crate) fn hold(&mut self, what: Option<Box<dyn Any>>) {
        self.held.extend(what);
    }

    /// What ends this lab's waits early.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The directory for sockets and for what peers write. It is there until the lab goes.
    pub fn dir(&mut self) -> Result<PeerDir, LabError> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(self.dir.insert(PeerDir::new()?).clone()),
        }
    }

    /// What other programs were started, unless there are none.
    pub fn record(&self) -> Option<Record> {
        self.dir.as_ref().map(PeerDir::record)
    }

    /// The switch that the containers are plugged into, where they are: there is one at most.
    pub fn switch(&self) -> Option<&PeerSwitch> {
        self.switch.as_ref()
    }

    /// Starts the lab's switch, which listens at `sockets`.
    pub(crate) fn start_switch(
        &mut self,
        kind: SwitchKind,
        wiring: Wiring,
        cpu: usize,
        ports: Vec<PeerPort>,
    ) -> Result<(), LabError> {
        let settings = SwitchSettings { kind, cpu, wiring, memory: Default::default(), ports };
        let dir = self.dir()?;
        let switch = match kind {
            SwitchKind::Dray => PeerSwitch::run(&dir, &self.program, &settings, &self.cancel)?,
            _ => PeerSwitch::start(&dir, &settings, &self.cancel)?,
        };
        self.set_switch(switch);
        Ok(())
    }

    /// Has the lab keep the switch that was started between its interfaces.
    pub(crate) fn set_switch(&mut self, switch: PeerSwitch) {
        self.switch = Some(switch);
    }

    /// Lets links take virtual functions of this network card of the machine's, which are given back
    /// when the lab goes.
    pub fn use_card(&mut self, name: &str, functions: &Functions) {
        self.card = Some((name.to_owned(), functions.clone()));
    }

    pub(crate) fn card(&self) -> Option<&(String, Functions)> {
        self.card.as_ref()
    }

    pub(crate) fn containers(&self) -> &[Container] {
        &self.containers
    }

    pub(crate) fn containers_mut(&mut self) -> &mut [Container] {
        &mut self.containers
    }

    pub(crate) fn host(&self) -> &Container {
        &self[HOST]
    }

    /// The ends of the next link.
    pub(crate) fn next_places(&mut self) -> [Place; 2] {
        self.links += 1;
        Place::both(self.links)
    }

    /// The name of a container's next interface.
    pub(crate) fn next_interface(&mut self, container: ContainerId) -> String {
        let count = &mut self[container].interfaces;
        *count += 1;
        format!("eth{}", *count - 1)
    }
}

impl Index<ContainerId> for Lab {
    type Output = Container;

    fn index(&self, id: ContainerId) -> &Container {
        &self.containers[id.0]
    }
}

impl IndexMut<ContainerId> for Lab {
    fn index_mut(&mut self, id: ContainerId) -> &mut Container {
        &mut self.containers[id.0]
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // All are told before the first is waited for, and the "host" is waited for when nothing is
        // left that runs inside it.
        self.containers.iter().for_each(Container::kill);
        self.starting.clear();
        self.engine = None;
        while self.containers.pop().is_some() {}
        // What is attached to a control group goes before the group.
        self.shortcut = None;
        if let Err(error) = self.group.remove() {
            eprintln!("dray: control groups could not be removed: {error}; try `dray lab clean`");
        }
    }
}

/// Removes what labs left behind whose process is gone; their names.
pub fn clean() -> Result<Vec<String>, LabError> {
    let mut removed =
        cgroup::remove_stale().map_err(LabError::doing("control groups of an earlier lab"))?;
    let peers = peer::remove_stale().map_err(LabError::doing("files of earlier peers"))?;
    removed.extend(peers);
    let parts =
        cache::remove_stale().map_err(LabError::doing("parts of the cache of earlier labs"))?;
    removed.extend(parts);
    Ok(removed)
}

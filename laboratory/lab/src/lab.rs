//! A lab: the containers of one experiment and the "host" between them.

use std::any::Any;
use std::fs::File;
use std::io;
use std::ops::{Index, IndexMut};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dray_bpf::Shortcut;

use crate::cgroup::{self, LabGroup};
use crate::container::Starting;
use crate::link::LinkOptions;
use crate::link::address::EndId;
use crate::link::card::{self, Card};
use crate::link::function::Functions;
use crate::link::kind::LinkKind;
use crate::peer::{Memory, PeerPort, PeerSwitch, SwitchKind, SwitchSettings, Wiring};
use crate::process::{self, PeerDir, Record};
use crate::runtime::network::{self, Driver, Network};
use crate::runtime::{Engine, EngineSettings, Privileges};
use crate::{
    Cancel, Container, ContainerId, LabError, NetworkNamespace, Runtime, cache, capability, peer,
    placement,
};

/// Containers and links. Dropping the lab removes all of them.
pub struct Lab {
    program: PathBuf,
    cancel: Cancel,
    runtime: Runtime,
    privileges: Privileges,
    /// The engine that makes the containers, from the first container on.
    pub(crate) engine: Option<Engine>,
    /// The network for the engine to make, and its MTU.
    network: Option<(LinkKind, u32)>,
    /// Number of networks of the engine that links use.
    networks: usize,
    group: LabGroup,
    has_control_groups: bool,
    containers: Vec<Container>,
    starting: Vec<Starting>,
    links: u32,
    /// Time that it took to make the links.
    pub(crate) linking: Duration,
    switch: Option<PeerSwitch>,
    shortcut: Option<Shortcut>,
    /// Objects that must live as long as the links that need them.
    resources: Vec<Box<dyn Any>>,
    /// The network card whose functions containers may get, and the settings of those functions.
    chosen_card: Option<(String, Functions)>,
    /// Cards whose functions containers have.
    cards: Vec<Rc<Card>>,
    /// Directory for sockets, from the first one on.
    dir: Option<PeerDir>,
}

pub(crate) const HOST: ContainerId = ContainerId(0);

impl Lab {
    /// Makes an empty lab, after removing what killed labs left behind. `program` is the `dray`
    /// that runs inside the containers. The containers are killed when the calling thread ends.
    pub fn new(program: PathBuf, cancel: Cancel) -> Result<Self, LabError> {
        Self::with_runtime(program, Runtime::Embedded, &[], cancel)
    }

    /// Makes an empty lab like [`new`](Self::new), with containers made by `runtime`. An engine
    /// gives them only `privileges`; the embedded runtime leaves them all privileges of the lab.
    pub fn with_runtime(
        program: PathBuf,
        runtime: Runtime,
        privileges: Privileges,
        cancel: Cancel,
    ) -> Result<Self, LabError> {
        capability::check()?;
        clean_up()?;
        let mut lab = Self {
            program,
            cancel,
            runtime,
            privileges,
            engine: None,
            network: None,
            networks: 0,
            group: LabGroup::new(),
            has_control_groups: true,
            containers: Vec::new(),
            starting: Vec::new(),
            links: 0,
            linking: Duration::ZERO,
            switch: None,
            shortcut: None,
            resources: Vec::new(),
            chosen_card: None,
            cards: Vec::new(),
            dir: None,
        };
        lab.starting.push(Starting::new(&lab.program, "host", &placement::allowed(), None)?);
        lab.wait_until_up()?;
        Ok(lab)
    }

    /// Joins all containers by a network that the engine makes itself. Must be called before the
    /// first container; `kind` is one of [`LinkKind::OF_ENGINES`]. The first call of
    /// [`link`](Self::link) finds the network; each further one makes another.
    pub fn join_by_network(&mut self, kind: LinkKind, mtu: u32) {
        assert_eq!(kind.runtime(), Some(self.runtime), "{kind} belongs to another runtime");
        assert!(self.engine.is_none(), "must be called before the first container");
        self.network = Some((kind, mtu));
    }

    pub(crate) fn network(&self) -> Option<(LinkKind, u32)> {
        self.network
    }

    /// Counts a network that a link uses; returns its number.
    pub(crate) fn next_network(&mut self) -> usize {
        self.networks += 1;
        self.networks - 1
    }

    /// Starts a container on the given CPUs. Containers start concurrently: call
    /// [`wait_until_up`](Self::wait_until_up) after the last one, before using any.
    pub fn start_container(&mut self, name: &str, cpus: &[usize]) -> Result<ContainerId, LabError> {
        self.cancel.check()?;
        let id = ContainerId(self.containers.len() + self.starting.len());
        let starting = match self.runtime {
            Runtime::Embedded => Starting::new(&self.program, name, cpus, Some(self.host()))?,
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
        let engine = self.engine.as_ref().expect("the engine was started");
        let address = self.network.map(|_| network::address(0, id.0));
        Starting::by_engine(engine, self.host(), &dir, name, cpus, address)
    }

    fn start_engine(&self, dir: PeerDir) -> Result<Engine, LabError> {
        let host = self.host().init();
        let driver = self.network.and_then(|(kind, _)| kind.engine()).map(|(_, driver)| driver);
        let settings = EngineSettings {
            runtime: self.runtime,
            program: &self.program,
            privileges: self.privileges,
            group: self.group.path(),
            has_rules: driver == Some(Driver::FilteredBridge),
        };
        let mut engine = Engine::start(settings, host, dir, &self.cancel)?;
        if let Some((kind, mtu)) = self.network {
            let (_, driver) = kind.engine().expect("a network of this engine");
            let base = self.make_base(0, kind, mtu)?;
            let network = Network { driver, base: base.as_deref(), mtu };
            engine.make_network(network, host, &self.cancel)?;
        }
        Ok(engine)
    }

    /// Waits until every container is set up inside.
    pub fn wait_until_up(&mut self) -> Result<(), LabError> {
        for starting in std::mem::take(&mut self.starting) {
            let (container, cpus) = starting.wait_until_started(&self.cancel)?;
            let id = ContainerId(self.containers.len());
            self.containers.push(container);
            self.wait_until_set_up(id)?;
            let container = &self[id];
            let (name, pid) = (container.name(), container.pid());
            self.has_control_groups &= if container.is_by_engine() {
                self.group.contains(pid)
            } else {
                let doing = LabError::doing(format!("control group of container {name}"));
                self.group.add(name, pid, &placement::ranges(&cpus)).map_err(doing)?
            };
        }
        Ok(())
    }

    /// Version of the engine that made the containers, and the capabilities that it gave them;
    /// `None` without an engine.
    pub fn engine(&self) -> Option<(&str, Vec<&'static str>)> {
        self.engine.as_ref().map(|engine| (engine.version(), engine.capabilities()))
    }

    /// Returns true if every container has a control group of its own. A host may refuse control
    /// groups, as some container runtimes do; only CPU affinity pins the containers then.
    pub fn has_control_groups(&self) -> bool {
        self.has_control_groups
    }

    /// Short-cuts every TCP connection made between containers from now on through a BPF socket
    /// map. Call it after the last container was started.
    pub fn short_cut_tcp(&mut self) -> Result<(), LabError> {
        let containers = self.containers.iter().map(|c| (c.name(), c.pid()));
        let doing = |what: &str| LabError::doing(format!("TCP shortcut: {what}"));
        let group = self.group.version_2(containers).map_err(doing("control group"))?;
        let group = File::open(group).map_err(doing("control group"))?;
        let shortcut = Shortcut::attach(group.as_fd()).map_err(io::Error::other);
        self.shortcut = Some(shortcut.map_err(doing("BPF"))?);
        Ok(())
    }

    /// Time that it took to make all links, with their switch.
    pub fn linking_took(&self) -> Duration {
        self.linking
    }

    /// Keeps an object that a link needs until the lab is dropped.
    pub(crate) fn keep_alive(&mut self, what: Option<Box<dyn Any>>) {
        self.resources.extend(what);
    }

    /// Flag that cancels this lab's waits.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Directory for sockets and for files of peers. It exists until the lab is dropped.
    pub fn dir(&mut self) -> Result<PeerDir, LabError> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => {
                remove_stale().map_err(LabError::doing("removing stale directories of peers"))?;
                Ok(self.dir.insert(PeerDir::new()?).clone())
            }
        }
    }

    /// Third-party programs started so far; `None` if there are none.
    pub fn record(&self) -> Option<Record> {
        self.dir.as_ref().map(PeerDir::record)
    }

    /// The switch that the containers are plugged into, if any: a lab has at most one.
    pub fn switch(&self) -> Option<&PeerSwitch> {
        self.switch.as_ref()
    }

    /// Starts the lab's switch with the given ports.
    pub(crate) fn start_switch(
        &mut self,
        kind: SwitchKind,
        wiring: Wiring,
        options: LinkOptions,
        ports: Vec<PeerPort>,
    ) -> Result<(), LabError> {
        let LinkOptions { switch_cpu: cpu, switch_sleeps: sleeps, .. } = options;
        let memory = Memory::default();
        let settings = SwitchSettings { kind, cpu, sleeps, wiring, memory, ports };
        let dir = self.dir()?;
        let switch = match kind {
            SwitchKind::Dray => PeerSwitch::run(&dir, &self.program, &settings, &self.cancel)?,
            _ => PeerSwitch::start(&dir, &settings, &self.cancel)?,
        };
        self.set_switch(switch);
        Ok(())
    }

    /// The `dray` program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Hands the lab a switch that was started between its interfaces.
    pub(crate) fn set_switch(&mut self, switch: PeerSwitch) {
        self.switch = Some(switch);
    }

    /// Lets the next links use virtual functions of this network card of the machine. They are
    /// given back when the lab is dropped.
    pub fn use_card(&mut self, name: &str, functions: &Functions) {
        self.chosen_card = Some((name.to_owned(), functions.clone()));
    }

    pub(crate) fn chosen_card(&self) -> Option<&(String, Functions)> {
        self.chosen_card.as_ref()
    }

    /// Returns the card `name`, at first with `count` new virtual functions.
    pub(crate) fn card(&mut self, name: &str, count: usize) -> Result<Rc<Card>, LabError> {
        if let Some(card) = self.cards.iter().find(|card| card.is(name)) {
            return Ok(card.clone());
        }
        let card = Rc::new(Card::create(self.dir()?, name, count)?);
        self.cards.push(card.clone());
        Ok(card)
    }

    pub(crate) fn containers(&self) -> &[Container] {
        &self.containers
    }

    pub(crate) fn containers_mut(&mut self) -> &mut [Container] {
        &mut self.containers
    }

    /// Network namespace that stands for the host.
    pub fn host_namespace(&self) -> &NetworkNamespace {
        self.host().namespace()
    }

    pub(crate) fn host(&self) -> &Container {
        &self[HOST]
    }

    /// Allocates both ends of the next link.
    pub(crate) fn next_ends(&mut self) -> [EndId; 2] {
        self.links += 1;
        EndId::both(self.links)
    }

    /// Allocates the name of a container's next interface.
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
        // Kill all containers before waiting for the first; wait for the "host" last, when nothing
        // runs inside it any more.
        self.containers.iter().for_each(Container::kill);
        self.starting.clear();
        self.engine = None;
        while self.containers.pop().is_some() {}
        // Programs attached to a control group go before the group.
        self.shortcut = None;
        if let Err(error) = self.group.remove() {
            eprintln!("dray: control groups could not be removed: {error}; try `dray lab clean`");
        }
    }
}

/// Removes what labs of ended processes left behind; returns the names of the removed objects. Only
/// root can see them all.
pub fn clean() -> Result<Vec<String>, LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::NotPermitted);
    }
    clean_up()
}

fn clean_up() -> Result<Vec<String>, LabError> {
    let mut removed =
        cgroup::remove_stale().map_err(LabError::doing("removing stale control groups"))?;
    let peers = remove_stale().map_err(LabError::doing("removing stale files of peers"))?;
    removed.extend(peers);
    let parts =
        cache::remove_stale().map_err(LabError::doing("removing stale cache partitions"))?;
    removed.extend(parts);
    Ok(removed)
}

/// Removes the directories of killed runs, and gives back their huge pages and network cards.
fn remove_stale() -> io::Result<Vec<String>> {
    process::remove_stale(|dir| {
        peer::release_hugepages(dir)?;
        card::restore_all(dir)
    })
}

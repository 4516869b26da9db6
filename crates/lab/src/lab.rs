//! A lab: the containers of one experiment and the "host" between them.

use std::any::Any;
use std::ops::{Index, IndexMut};
use std::path::PathBuf;

use crate::cgroup::{self, LabGroup};
use crate::link::Place;
use crate::peer::{PeerDir, PeerPort, PeerSwitch, SwitchKind, SwitchSettings, Wiring};
use crate::{Cancel, Container, ContainerId, LabError, peer, placement};

/// Containers and links. Dropping it removes all of them.
pub struct Lab {
    program: PathBuf,
    cancel: Cancel,
    group: LabGroup,
    has_control_groups: bool,
    containers: Vec<Container>,
    links: u32,
    switch: Option<PeerSwitch>,
    /// What links need for as long as they are there.
    held: Vec<Box<dyn Any>>,
    /// The network card that containers may get functions of.
    card: Option<String>,
    /// Where sockets are, once there are some.
    dir: Option<PeerDir>,
}

const HOST: ContainerId = ContainerId(0);

impl Lab {
    /// An empty lab, after removing what labs left that were killed. `program` is the `dray` that
    /// runs inside the containers. The containers die with the calling thread.
    pub fn new(program: PathBuf, cancel: Cancel) -> Result<Self, LabError> {
        clean()?;
        let mut lab = Self {
            program,
            cancel,
            group: LabGroup::new(),
            has_control_groups: true,
            containers: Vec::new(),
            links: 0,
            switch: None,
            held: Vec::new(),
            card: None,
            dir: None,
        };
        lab.start_container("host", &placement::allowed())?;
        lab.wait_until_up()?;
        Ok(lab)
    }

    /// Starts a container on the given CPUs. Several come up at the same time: call
    /// [`wait_until_up`](Self::wait_until_up) after the last one.
    pub fn start_container(&mut self, name: &str, cpus: &[usize]) -> Result<ContainerId, LabError> {
        self.cancel.check()?;
        let container = Container::start(&self.program, name, cpus)?;
        let pid = container.pid();
        let id = ContainerId(self.containers.len());
        self.containers.push(container);
        let doing = LabError::doing(format!("control group of container {name}"));
        self.has_control_groups &=
            self.group.add(name, pid, &placement::ranges(cpus)).map_err(doing)?;
        Ok(id)
    }

    /// Waits until every container is set up inside.
    pub fn wait_until_up(&mut self) -> Result<(), LabError> {
        self.containers.iter_mut().try_for_each(|container| container.wait_until_up(&self.cancel))
    }

    /// Whether every container is in a control group of its own. A host may refuse that, as some
    /// container runtimes do; the containers are pinned by their CPU affinity alone then.
    pub fn has_control_groups(&self) -> bool {
        self.has_control_groups
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

    /// The switch that the containers are plugged into, where they are.
    pub fn switch(&self) -> Option<&PeerSwitch> {
        self.switch.as_ref()
    }

    /// Starts the lab's switch, which listens at `sockets`.
    pub(crate) fn start_switch(
        &mut self,
        kind: SwitchKind,
        wiring: Wiring,
        cpu: usize,
        sockets: &[PathBuf],
    ) -> Result<(), LabError> {
        let ports = sockets.iter().map(PeerPort::listening).collect();
        let settings = SwitchSettings { kind, cpu, wiring, memory: Default::default(), ports };
        let switch = PeerSwitch::start(&self.dir()?, &settings, &self.cancel)?;
        self.set_switch(switch);
        Ok(())
    }

    /// Has the lab keep the switch that was started between its interfaces.
    pub(crate) fn set_switch(&mut self, switch: PeerSwitch) {
        assert!(self.switch.is_none(), "one switch in a lab");
        self.switch = Some(switch);
    }

    /// Lets links take virtual functions of this network card of the machine's, which are given back
    /// when the lab goes.
    pub fn use_card(&mut self, name: &str) {
        self.card = Some(name.to_owned());
    }

    pub(crate) fn card(&self) -> Option<&str> {
        self.card.as_deref()
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
        // All are told before the first is waited for.
        self.containers.iter().for_each(Container::kill);
        self.containers.clear();
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
    Ok(removed)
}

//! A chain of containers that have only links.

use std::process::{Child, Command};

use dray_lab::link::LinkOptions;
use dray_lab::{Cancel, ContainerId, Lab, LinkKind, placement};
use dray_port::{Port, PortUri};

use super::DRAY;

pub struct Hosts {
    lab: Lab,
    ids: Vec<ContainerId>,
}

impl Hosts {
    /// Creates hosts, each with its predecessor on one interface and its successor on the next.
    pub fn chain(count: usize, kind: LinkKind, mtu: u32, addressed: bool) -> Self {
        let mut lab = Lab::new(DRAY.into(), Cancel::default()).unwrap();
        let ids: Vec<_> = (0..count)
            .map(|n| lab.start_container(&format!("host-{n}"), &placement::allowed()).unwrap())
            .collect();
        lab.wait_until_up().unwrap();
        for pair in ids.windows(2) {
            let options = LinkOptions { addressed, ..LinkOptions::of_mtu(mtu) };
            lab.link(kind, &[[pair[0], pair[1]]], options).unwrap();
        }
        Self { lab, ids }
    }

    /// Runs `work` in a host's network namespace.
    pub fn within<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        self.lab[self.ids[host]].namespace().enter(|| Ok(work())).unwrap()
    }

    pub fn try_open(&self, host: usize, uri: &str) -> Result<Port, String> {
        let uri: PortUri = uri.parse().unwrap();
        self.within(host, || uri.open()).map_err(|error| error.to_string())
    }

    pub fn open(&self, host: usize, uri: &str) -> Port {
        self.try_open(host, uri).unwrap()
    }

    /// Starts a command in a host's network namespace.
    pub fn start(&self, host: usize, command: &mut Command) -> Child {
        self.within(host, || command.spawn()).unwrap()
    }

    /// Starts a role of `dray` and waits until its ports are open.
    pub fn start_role(&self, host: usize, command: &mut Command) -> Child {
        let child = self.start(host, command);
        assert!(super::eventually(|| super::runs_role(&child)), "the role does not start");
        child
    }
}

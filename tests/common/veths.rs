//! Veth pairs in one network namespace, with a given number of queues.

use std::process::Command;
use std::sync::Arc;

use dray_lab::NetworkNamespace;
use dray_port::{Port, PortUri};

/// A network namespace that contains both ends of veth pairs.
pub struct Veths(pub Arc<NetworkNamespace>);

impl Veths {
    pub fn new(queues: u32, pairs: &[[&str; 2]]) -> Self {
        let veths = Self(NetworkNamespace::scratch().unwrap().into());
        for [a, b] in pairs {
            veths.add(a, b, queues, 1500);
        }
        veths
    }

    /// Creates a pair with `queues` queues in each direction.
    pub fn add(&self, a: &str, b: &str, queues: u32, mtu: u32) {
        let end = format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
        self.ip(&format!("link add name {a} {end} type veth peer name {b} {end}"));
        for end in [a, b] {
            // Keep the kernel from sending frames of its own.
            self.ip(&format!("link set dev {end} addrgenmode none up"));
        }
    }

    pub fn ip(&self, arguments: &str) {
        self.run(&format!("ip {arguments}"));
    }

    pub fn run(&self, command: &str) {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap());
        program.args(words);
        assert!(self.0.enter(|| program.status()).unwrap().success(), "{command}");
    }

    pub fn try_open(&self, uri: &str) -> Result<Port, String> {
        let uri: PortUri = uri.parse().unwrap();
        self.0.enter(|| Ok(uri.open())).unwrap().map_err(|error| error.to_string())
    }

    pub fn open(&self, uri: &str) -> Port {
        self.try_open(uri).unwrap()
    }

    pub fn index(&self, interface: &str) -> u32 {
        let index = self.0.enter(|| {
            let socket = rustix::net::socket(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::DGRAM,
                None,
            )?;
            Ok(rustix::net::netdevice::name_to_index(&socket, interface)?)
        });
        index.unwrap()
    }
}

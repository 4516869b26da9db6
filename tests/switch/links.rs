//! Links and hard links that the peer of a port puts in the way to a socket.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dray_switch::client::Client;
use dray_switch::{PortState, PortStatus};
use tempfile::TempDir;

use crate::common::{self, Started, alone, eventually};

/// A switch with ports of two containers, each with a directory that it may change as it likes.
struct Node {
    folder: TempDir,
    _switch: Started,
}

impl Node {
    /// Starts a switch with ports in which `DIR` stands for the folder with the containers'
    /// directories.
    fn new(ports: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "a/deep"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let here = folder.path().display().to_string();
        let mut command = common::command();
        command.args(["switch", "--control", &format!("{here}/control")]);
        command.args(ports.iter().map(|port| port.replace("DIR", &here)));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let switch = Started(command.spawn().unwrap());
        let node = Self { folder, _switch: switch };
        assert!(eventually(|| node.client().status().is_ok()));
        node
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> Client {
        Client::new(&self.at("control"))
    }

    fn port(&self, name: &str) -> PortStatus {
        self.client().port(&name.parse().unwrap()).unwrap()
    }

    /// Waits until port `a` says that it cannot connect, with these words.
    #[track_caller]
    fn says(&self, part: &str) {
        let why = || self.port("a").unreachable.unwrap_or_default();
        assert!(eventually(|| why().contains(part)), "{part}: {:?}", self.port("a"));
    }

    /// Fails if ports `a` and `b` are linked within the time in which `a` tries several times.
    #[track_caller]
    fn assert_apart(&self) {
        let until = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < until {
            for name in ["a", "b"] {
                let port = self.port(name);
                assert_eq!(port.state, PortState::Waiting, "{port:?}");
                assert_eq!(port.last_disconnect, None, "{port:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Ports `a` that connect to a socket of their container, and ports `b` of the switch's sockets.
const PAIRS: [(&str, &str); 2] = [
    ("a=virtio:DIR/a/s,vlan=10", "b=vhost:DIR/b/s,vlan=20"),
    ("a=memif:DIR/a/s,vlan=10", "b=memif:DIR/b/s?role=server,vlan=20"),
];

#[test]
fn link_to_other_ports_socket_joins_no_vlans() {
    let _alone = alone();
    for (a, b) in PAIRS {
        let node = Node::new(&[a, b]);
        for target in ["../b/s".into(), node.at("b/s")] {
            symlink(target, node.at("a/s")).unwrap();
            node.says("is a symbolic link, which is not followed");
            node.assert_apart();
            fs::remove_file(node.at("a/s")).unwrap();
        }
        // A second name is as good as a link.
        fs::hard_link(node.at("b/s"), node.at("a/s")).unwrap();
        node.says("refused: ");
        node.assert_apart();
    }
}

#[test]
fn link_on_the_way_to_socket_joins_no_vlans() {
    let _alone = alone();
    for (a, b) in PAIRS {
        let node = Node::new(&[&a.replace("/a/s", "/a/deep/s"), b]);
        // A container is often root: its links look like those of the host's root.
        fs::remove_dir(node.at("a/deep")).unwrap();
        symlink("../b", node.at("a/deep")).unwrap();
        node.says("/a/deep: a symbolic link");
        node.assert_apart();
    }
}

#[test]
fn port_is_not_linked_to_another_of_its_switch() {
    let _alone = alone();
    let own = format!("@dray-test-own-{}", std::process::id());
    // A configuration in which two ports have one socket is refused, but a file has many names.
    let mut pairs = PAIRS.map(|(a, b)| [a.replace("/a/s", "/a/../b/s"), b.to_owned()]).to_vec();
    pairs.push([
        format!("a=memif:{own}?id=1,vlan=10"),
        format!("b=memif:{own}?role=server&id=2,vlan=20"),
    ]);
    for [a, b] in &pairs {
        let node = Node::new(&[a, b]);
        node.says("refused: this is a socket of this program itself");
        node.assert_apart();
    }
    for peer in ["DIR/b/s", &own] {
        let a = format!("a=unix:DIR/own?peer={},vlan=10", peer.replace("/b/s", "/a/../b/s"));
        let node = Node::new(&[&a, &format!("b=unix:{peer},vlan=20")]);
        node.says("refused: this is a socket of this program itself");
    }
}

#[test]
fn driver_of_another_container_is_not_reached_by_a_link() {
    let _alone = alone();
    let ports = ["a=vhost:DIR/a/s?client=1,vlan=10", "b=vhost:DIR/b/s?client=1,vlan=20"];
    let node = Node::new(&ports);
    for is_hard in [false, true] {
        let driver = UnixListener::bind(node.at("b/s")).unwrap();
        // A socket with two names is refused at both: it may be the other one's.
        match is_hard {
            false => symlink("../b/s", node.at("a/s")).unwrap(),
            true => fs::hard_link(node.at("b/s"), node.at("a/s")).unwrap(),
        }
        node.says(if is_hard { "refused: " } else { "is a symbolic link" });
        driver.set_nonblocking(true).unwrap();
        let until = Instant::now() + Duration::from_millis(2500);
        let mut peers = Vec::new();
        while Instant::now() < until {
            peers.extend(driver.accept().ok());
            assert_eq!(node.port("a").state, PortState::Waiting);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(peers.len() <= 1, "{} ports came to one container", peers.len());
        fs::remove_file(node.at("a/s")).unwrap();
        fs::remove_file(node.at("b/s")).unwrap();
    }
}

#[test]
fn datagrams_of_a_vlan_follow_no_link_to_another_container() {
    let _alone = alone();
    let node = Node::new(&["x=unix:DIR/x,vlan=10", "a=unix:DIR/own?peer=DIR/a/s,vlan=10"]);
    let victim = UnixDatagram::bind(node.at("b/s")).unwrap();
    victim.set_nonblocking(true).unwrap();
    symlink("../b/s", node.at("a/s")).unwrap();
    node.says("is a symbolic link, which is not followed");
    let sender = UnixDatagram::unbound().unwrap();
    let mut broadcast = [0xff; 64];
    broadcast[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    let send = || {
        sender.send_to(&broadcast, node.at("x")).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    };
    for _ in 0..50 {
        send();
    }
    assert!(victim.recv(&mut [0; 64]).is_err(), "a frame of VLAN 10 came to the other container");
    // The container's own socket is found at once.
    fs::remove_file(node.at("a/s")).unwrap();
    let own = UnixDatagram::bind(node.at("a/s")).unwrap();
    own.set_nonblocking(true).unwrap();
    assert!(eventually(|| {
        send();
        own.recv(&mut [0; 64]).is_ok()
    }));
}

/// A container may write in the directory of its port's socket, and puts a link in the socket's
/// place as soon as there is one.
#[test]
fn mode_of_socket_is_given_to_no_other_file() {
    let _alone = alone();
    let node = Node::new(&[]);
    let (socket, link, secret) = (node.at("a/s"), node.at("a/link"), node.at("secret"));
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let mut replaced = 0;
            while !is_done.load(Ordering::Relaxed) {
                let _ = symlink(&secret, &link);
                if fs::symlink_metadata(&socket).is_ok() {
                    replaced += usize::from(fs::rename(&link, &socket).is_ok());
                    std::thread::sleep(Duration::from_millis(1));
                    let _ = fs::remove_file(&socket);
                }
            }
            replaced
        });
        let client = node.client();
        let uri = format!("r=vhost:{}?mode=0666", socket.display());
        let port = uri.parse().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        // Rounds in which the switch has made the socket and given it its mode.
        let (mut rounds, mut made) = (0, 0);
        while made < 1000 && Instant::now() < until && mode_of(&secret) == 0o600 {
            if client.add_port(&port).is_ok() {
                client.remove_port(&"r".parse().unwrap()).unwrap();
                made += 1;
            }
            rounds += 1;
        }
        is_done.store(true, Ordering::Relaxed);
        let replaced = attack.join().unwrap();
        println!("{rounds} rounds, {made} sockets made, {replaced} replaced");
        assert_eq!(mode_of(&secret), 0o600, "after {rounds} rounds");
        assert!(made >= 200 && replaced >= 50, "{made} sockets made, {replaced} replaced: no race");
    });
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

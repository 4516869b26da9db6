//! Hostile containers: nothing that one does reaches another one or the host.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use dray_switch::PortState;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use serde_json::json;

use crate::common::{alone, eventually};
use crate::node::{Node, Pod};

/// Connects to the abstract socket of a `virtio` attachment, in the calling thread's namespace.
fn connect_abstract() -> io::Result<rustix::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(b"dray/eth0")?)?;
    Ok(socket)
}

#[test]
fn link_or_pipe_in_a_directory_leads_to_no_other_container() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = json!({"kind": "vhost"});
    let pods = [Pod::new(), Pod::new()];
    let sockets: Vec<PathBuf> = (0..2)
        .map(|at| {
            let result = node.call("ADD", &format!("c{at}"), &pods[at].path(), &keys).unwrap();
            result["interfaces"][0]["socketPath"].as_str().unwrap().into()
        })
        .collect();
    let victim = node.at("victim.sock");
    let host = UnixListener::bind(&victim).unwrap();
    host.set_nonblocking(true).unwrap();
    let other = UnixListener::bind(&sockets[1]).unwrap();
    // The switch connects to the second container's own socket.
    let (_connection, _) = other.accept().unwrap();
    other.set_nonblocking(true).unwrap();
    let says = |what: &str| {
        let why = || node.ports()[0].unreachable.clone().unwrap_or_default();
        assert!(
            eventually(|| why() == format!("vhost.sock is a {what}, not a socket")),
            "{}",
            why()
        );
    };
    for target in [victim.as_path(), &sockets[1]] {
        symlink(target, &sockets[0]).unwrap();
        says("symbolic link");
        fs::remove_file(&sockets[0]).unwrap();
    }
    mknodat(CWD, &sockets[0], FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    says("pipe");
    assert_eq!(host.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(other.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(node.ports()[0].state, PortState::Waiting);
    // A socket of its own is found again.
    fs::remove_file(&sockets[0]).unwrap();
    let own = UnixListener::bind(&sockets[0]).unwrap();
    own.accept().unwrap();
    // What it puts there is bounded, and gone with it.
    let directory = sockets[0].parent().unwrap();
    assert!(fs::write(directory.join("large"), vec![0; 1 << 20]).is_err());
    let files = (0..1000).take_while(|at| fs::write(directory.join(at.to_string()), "").is_ok());
    assert!(files.count() < 100);
    for (at, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("c{at}"), &pod.path(), &keys).unwrap();
    }
    node.assert_clean();
}

#[test]
fn abstract_socket_is_reached_from_its_own_namespace_only() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = json!({"kind": "virtio"});
    let pods = [Pod::new(), Pod::new()];
    node.call("ADD", "c0", &pods[0].path(), &keys).unwrap();
    let refused = |result: io::Result<_>| {
        assert_eq!(result.map(drop).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    };
    refused(pods[1].enter(connect_abstract));
    refused(connect_abstract());
    pods[0].enter(connect_abstract).unwrap();
    // A container that takes the name before gets no port, and disturbs nobody.
    let taken = pods[1].enter(|| {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        bind(&socket, &SocketAddrUnix::new_abstract_name(b"dray/eth0").unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        socket
    });
    let error = node.call("ADD", "c1", &pods[1].path(), &keys).unwrap_err();
    assert!(error["msg"].as_str().unwrap().contains("another program uses this socket"), "{error}");
    assert_eq!(node.names_in("run/cni"), ["c0:eth0.json"]);
    drop(taken);
    node.call("ADD", "c1", &pods[1].path(), &keys).unwrap();
    for (at, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("c{at}"), &pod.path(), &keys).unwrap();
    }
    node.assert_clean();
}

#[test]
fn connections_without_end_disturb_no_other_container() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    node.warm_up();
    let before = node.descriptors();
    let tap = json!({"ipam": node.ipam(&["10.1.0.0/16"])});
    let pods = [Pod::new(), Pod::new()];
    for (at, pod) in pods.iter().enumerate() {
        node.call("ADD", &format!("c{at}"), &pod.path(), &tap).unwrap();
    }
    let hostile = Pod::new();
    node.call("ADD", "h", &hostile.path(), &json!({"kind": "virtio"})).unwrap();
    let connected = hostile.enter(|| {
        let mut kept = Vec::new();
        let mut connected = 0;
        for number in 0..10_000 {
            // The queue of connections is full now and then.
            if let Ok(socket) = connect_abstract() {
                connected += 1;
                if number % 100 == 0 {
                    kept.push(socket);
                }
            }
        }
        connected
    });
    assert!(connected > 100);
    pods[0].run("ping -c 3 -i 0.2 -W 5 10.1.0.3");
    assert_eq!(node.ports().len(), 3);
    node.call("DEL", "h", &hostile.path(), &json!({})).unwrap();
    for (at, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("c{at}"), &pod.path(), &tap).unwrap();
    }
    node.assert_clean();
    assert!(
        eventually(|| node.descriptors().len() <= before.len()),
        "{:?} {before:?}",
        node.descriptors()
    );
}

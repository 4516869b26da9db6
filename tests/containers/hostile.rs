//! Hostile containers: nothing that one does reaches another one or the host.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use dray_switch::PortState;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use serde_json::{Value, json};

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
        assert!(eventually(|| why() == format!("vhost.sock is {what}")), "{}", why());
    };
    for target in [victim.as_path(), &sockets[1]] {
        symlink(target, &sockets[0]).unwrap();
        says("a symbolic link, which is not followed");
        fs::remove_file(&sockets[0]).unwrap();
    }
    mknodat(CWD, &sockets[0], FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    says("not a socket but a pipe");
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
    // A container that takes the name before gets no port, and disturbs no other container.
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

/// Gives a file to a user who is neither root nor the switch.
fn give_away(path: &Path) {
    std::os::unix::fs::chown(path, Some(5555), Some(5555)).unwrap();
}

#[test]
fn root_mounts_nothing_where_another_user_leads_it() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let (pod, keys) = (Pod::new(), json!({"kind": "vhost"}));
    let (vhost, target) = (node.at("run/vhost"), node.at("etc"));
    fs::create_dir(&target).unwrap();
    fs::write(target.join("passwd"), "root").unwrap();
    // As a member of the group that may write in /run/dray, before the first attachment.
    fs::create_dir(&vhost).unwrap();
    give_away(&vhost);
    symlink(&target, vhost.join("c0.eth0")).unwrap();
    let refused = |part: &str| {
        let error = node.call("ADD", "c0", &pod.path(), &keys).unwrap_err();
        assert!(error["msg"].as_str().unwrap().contains(part), "{error}");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(target.to_str().unwrap()), "{mounts}");
        assert_eq!(fs::read_to_string(target.join("passwd")).unwrap(), "root");
    };
    refused("owner 5555");
    // The directory itself as a link.
    fs::remove_dir_all(&vhost).unwrap();
    symlink(&target, &vhost).unwrap();
    std::os::unix::fs::lchown(&vhost, Some(5555), Some(5555)).unwrap();
    refused("is not a directory");
    fs::remove_file(&vhost).unwrap();
    node.call("ADD", "c0", &pod.path(), &keys).unwrap();
    node.call("DEL", "c0", &pod.path(), &keys).unwrap();
    node.assert_clean();
}

#[test]
fn records_of_another_user_are_not_obeyed() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let (pod, keys) = (Pod::new(), json!({"kind": "memif"}));
    node.call("ADD", "c0", &pod.path(), &keys).unwrap();
    let important = node.at("important");
    fs::write(&important, "").unwrap();
    let record = node.at("run/cni/c0:eth0.json");
    let text = fs::read_to_string(&record).unwrap();
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    changed["device_info"] = json!(important);
    fs::write(&record, changed.to_string()).unwrap();
    give_away(&node.at("run/cni"));
    for verb in ["DEL", "ADD"] {
        let error = node.call(verb, "c0", &pod.path(), &keys).unwrap_err();
        assert!(error["msg"].as_str().unwrap().contains("owner 5555"), "{error}");
        assert!(important.exists(), "root removed a file of another user's choice");
    }
    fs::write(&record, text).unwrap();
    std::os::unix::fs::chown(node.at("run/cni"), Some(0), Some(0)).unwrap();
    node.call("DEL", "c0", &pod.path(), &keys).unwrap();
    node.assert_clean();
}

#[test]
fn device_info_is_written_through_no_link_of_another_user() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let (pod, folder, important) = (Pod::new(), node.at("info"), node.at("important"));
    fs::create_dir(&folder).unwrap();
    fs::write(&important, "root's").unwrap();
    let keys = |path: &Path| json!({"kind": "memif", "runtimeConfig": {"CNIDeviceInfoFile": path}});
    // Where the plugin writes first, before it renames the file.
    give_away(&folder);
    symlink(&important, folder.join("c0.json.new")).unwrap();
    node.call("ADD", "c0", &pod.path(), &keys(&folder.join("c0.json"))).unwrap();
    assert_eq!(fs::read_to_string(&important).unwrap(), "root's");
    assert!(fs::read_to_string(folder.join("c0.json")).unwrap().contains("memif"));
    node.call("DEL", "c0", &pod.path(), &keys(&folder.join("c0.json"))).unwrap();
    assert_eq!(node.names_in("info"), [""; 0]);
    // On the way.
    let link = folder.join("link");
    fs::create_dir(node.at("info2")).unwrap();
    symlink(node.at("info2"), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(5555), Some(5555)).unwrap();
    let error = node.call("ADD", "c0", &pod.path(), &keys(&link.join("c0.json"))).unwrap_err();
    assert!(error["msg"].as_str().unwrap().contains("symbolic link of user 5555"), "{error}");
    assert_eq!(node.names_in("info2"), [""; 0]);
    node.assert_clean();
}

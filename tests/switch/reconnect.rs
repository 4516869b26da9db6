//! Ports that connect again after their switch or their driver was killed, as `curl` sees it at the
//! control socket.

use std::path::Path;
use std::process::{Command, Stdio};

use dray_switch::client::Client;

use crate::common::{self, Started, alone};
use crate::ends::{self, Frames, eventually, pass, plug, reach, wait_until_up};

/// Starts a switch as a separate process, and waits until it replies.
fn start_switch(arguments: &[&str], control: &Path) -> Started {
    let mut command = common::command();
    command.arg("switch").args(arguments).arg("--control").arg(control);
    let switch = Started(command.stdout(Stdio::null()).spawn().unwrap());
    eventually("the switch answers", || Client::new(control).status().is_ok());
    switch
}

/// Returns `curl`'s output for a request at a control socket.
fn curl(control: &Path, path: &str, more: &[&str]) -> serde_json::Value {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--fail-with-body", "--max-time", "20"])
        .arg("--unix-socket")
        .arg(control)
        .arg(format!("http://localhost{path}"))
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{path}: {said} {}", String::from_utf8_lossy(&output.stderr));
    if said.is_empty() { serde_json::Value::Null } else { serde_json::from_str(&said).unwrap() }
}

#[test]
fn ports_reconnect_after_switch_or_driver_is_killed() {
    let _alone = alone();
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        return common::skip("curl is not installed; apt install curl");
    }
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let sockets = ["a", "b"].map(|name| folder.path().join(name));
    let uri = |index: usize| format!("vhost:{}", sockets[index].display());
    let a = format!("a={}", uri(0));
    let start = || {
        let arguments = ["--mode", "patch", "--flow", "backpressure", "--port", &a];
        let daemon = start_switch(&arguments, &control);
        let body = serde_json::json!({"name": "b", "uri": uri(1)}).to_string();
        let added = curl(&control, "/ports", &["--json", &body]);
        assert_eq!(added["partner"], "a", "{added}");
        daemon
    };
    let mut daemon = start();
    let [mut port_a, mut port_b] = sockets.each_ref().map(|socket| plug(socket, "packed=1"));
    let frames = Frames::between(1, 2);
    for round in 0..3 {
        if round > 0 {
            drop(daemon);
            eventually("its end is noticed", || !port_a.tx[0].is_ready());
            daemon = start();
            wait_until_up(&port_a);
            wait_until_up(&port_b);
        }
        reach((&mut port_a.tx, &mut port_b.rx), &frames);
        pass((&mut port_a.tx, &mut port_b.rx), &frames, &frames, 3000);
        let stats = curl(&control, "/stats", &[]);
        assert_eq!(stats[0]["rx_frames"], stats[1]["tx_frames"], "{stats}");
        assert_eq!(stats[1]["drops"]["receiver_full"], 0, "{stats}");
    }

    // A container is killed while it sends, and another one takes its place.
    drop(port_a);
    let is = |state: &str| curl(&control, "/ports/a", &[])["state"] == state;
    eventually("a waits", || is("waiting"));
    for killed in 1..3_u64 {
        let mut sender = common::command()
            .args(["send", "--rate", "10k", "--port", &format!("virtio:{}", sockets[0].display())])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("a runs", || is("running"));
        let before = counted(&control);
        eventually("it sends", || counted(&control) > before);
        sender.kill().unwrap();
        sender.wait().unwrap();
        eventually("its end is reported", || is("waiting"));
        let port = curl(&control, "/ports/a", &[]);
        assert_eq!(port["disconnects"]["the peer disconnected"], 1 + killed, "{port}");
        assert!(is("waiting") && curl(&control, "/ports/b", &[])["state"] == "running");
        // Room for the frames of the next sender.
        ends::arrived(&mut port_b, &frames);
    }
    curl(&control, "/ports/a", &["-X", "DELETE"]);
    assert_eq!(curl(&control, "/ports", &[]).as_array().unwrap().len(), 1);
    drop(daemon);
}

/// Returns the number of frames received at port `a`.
fn counted(control: &Path) -> u64 {
    curl(control, "/ports/a", &[])["counters"]["rx_frames"].as_u64().unwrap()
}

//! Labs by hand: `dray lab up`, `down`, `ls`, `exec` and `graph`, on the real kernel.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{self, Traces, alone, dray, eventually, success};
use crate::standing::{EXAMPLES, PAIR, Up, write};
use dray_bpf::{Bypass, BypassIds};
use dray_lab::peer::SwitchKind;
use dray_lab::standing::ContainerState;
use rustix::process::{Pid, Signal, kill_process};

/// Waits until the switch of the lab's links, if there is one, has accepted a container's port.
fn wait_for_switch(lab: &str, container: &ContainerState) {
    if !container.ports[0].name.starts_with('/') {
        return;
    }
    let is_running = || success(&["switch", "ports", "--lab", lab]).contains(" running ");
    assert!(eventually(is_running));
}

#[test]
fn every_example_topology_passes_frames() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let one = "--port $PORT0";
    let three = "--port $PORT0 --port $PORT1 --port $PORT2";
    let pair = "--port udp:$ADDRESS0:9000-10.0.0.8:9000";
    // The sender, its ports and the receiver of each example.
    let cases = [
        ("ara2019", "sender", one, "receiver"),
        ("casoni2013-chain", "sender", one, "receiver"),
        ("casoni2013-fan", "sender", three, "receiver"),
        ("claassen2016", "client-4", pair, "server-4"),
        ("liang2016", "sender", one, "receiver"),
    ];
    let files = fs::read_dir(EXAMPLES).unwrap().flatten();
    let texts = files.map(|file| fs::read_to_string(file.path()).unwrap());
    let topologies = texts.filter(|text| text.contains("[[containers]]")).count();
    assert_eq!(topologies, cases.len() + 2, "the UPF's is tested below, ns-3's in with_tools");
    for (name, sender, ports, receiver) in cases {
        let up = Up::example(name);
        wait_for_switch(name, &up.container(receiver));
        let send = format!("dray send {ports} --rate 5k --duration 0.3");
        let sent = up.exec_well(sender, &["sh", "-c", &send]);
        let sent = sent.split_whitespace().nth(1).unwrap().to_owned();
        assert_ne!(sent, "0", "{name}");
        // Let frames in flight arrive; then interrupt every process of the container but the first.
        sleep(Duration::from_millis(100));
        up.exec_well(receiver, &["sh", "-c", "kill -INT -1"]);
        let ended = || up.container(receiver).program.unwrap().ended;
        assert!(eventually(|| ended().is_some()), "{name}");
        assert_eq!(ended().unwrap(), "exit status 0", "{name}");
        let report = fs::read_to_string(up.container(receiver).program.unwrap().log).unwrap();
        let report = report.lines().last().unwrap_or_default();
        assert!(report.starts_with(&format!("received {sent} frames")), "{name}: {report}");
        assert!(report.contains("; lost 0, "), "{name}: {report}");
        up.down();
        assert!(eventually(|| before.changes().is_empty()), "{name}: {:?}", before.changes());
    }
}

#[test]
fn upf_example_passes_packets_both_ways() {
    let _alone = alone();
    require_root!();
    let up = Up::example("shyamkumar2022");
    let config = format!("{EXAMPLES}/upf.toml");
    let load = ["dray", "upf-load", "--n3", "raw:eth0", "--n6", "raw:eth1", "--config", &config];
    let how = ["--rate", "5k", "--duration", "0.3", "--json", "--allow-loss"];
    let mut said = Vec::new();
    // If the machine is busy with other work, kernel links may lose a few packets now and then, or
    // reorder them when a thread moves to another CPU.
    let is_carried = (0..3).any(|_| {
        let load = up.exec("generator", &[&load[..], &how].concat());
        let stats = up.exec_well("upf", &["dray", "upf", "stats", "--json"]);
        said.push((String::from_utf8_lossy(&load.stderr).into_owned(), stats));
        if !load.status.success() {
            return false;
        }
        let report: serde_json::Value = serde_json::from_slice(&load.stdout).unwrap();
        said.push((report.to_string(), String::new()));
        ["uplink", "downlink"].iter().all(|way| {
            let number = |name: &str| report[way][name].as_u64().unwrap();
            assert!(number("sent") > 100, "{report}");
            number("received") == number("sent")
        })
    });
    assert!(is_carried, "{said:?}");
    up.down();
}

#[test]
fn exec_runs_inside_and_returns_status() {
    let _alone = alone();
    require_root!();
    let up = Up::text(PAIR, "status");
    assert_eq!(up.exec_well("b", &["hostname"]), "b\n");
    assert_eq!(
        up.exec_well("b", &["sh", "-c", "echo $$ $PORT0 $ADDRESS0 $PEER_ADDRESS0"])
            .split_once(' ')
            .unwrap()
            .1,
        "raw:eth0 10.7.0.2 10.7.0.1\n"
    );
    let interfaces = up.exec_well("b", &["ls", "/sys/class/net"]);
    assert!(interfaces.contains("eth0") && interfaces.contains("lo"), "{interfaces}");
    // PIDs are those of the container, and small.
    let pid: u32 = up.exec_well("a", &["sh", "-c", "echo $$"]).trim().parse().unwrap();
    assert!(pid < 100 && up.exec_well("a", &["cat", "/proc/1/comm"]) == "dray\n", "{pid}");
    assert_eq!(up.exec("a", &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(up.exec("a", &["sh", "-c", "kill -TERM $$"]).status.code(), Some(128 + 15));
    let missing = up.exec("a", &["no-such-command"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).starts_with("dray: no-such-command: "));
    let unknown = up.exec("c", &["true"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(2), "{said}");
    assert!(said.contains("\"c\"") && said.contains("host, a, b"), "{said}");
    // Standard input is passed on.
    let mut cat = common::command();
    cat.args(["lab", "exec", "a", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = cat.spawn().unwrap();
    std::io::Write::write_all(&mut cat.stdin.take().unwrap(), b"through").unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"through");
    // A command that still runs when the lab is removed ends with it.
    let mut sleeper =
        common::command().args(["lab", "exec", "a", "--", "sleep", "1000"]).spawn().unwrap();
    let sleeps = || up.exec_well("a", &["sh", "-c", "cat /proc/[0-9]*/comm"]).contains("sleep");
    assert!(eventually(sleeps));
    up.down();
    assert_eq!(sleeper.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn named_labs_are_isolated() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let failure = |arguments: &[&str]| {
        let output = dray(arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(success(&["lab", "ls"]), "no lab is up\n");
    assert!(
        failure(&["lab", "down"]).contains("no lab is up; start one with `dray lab up FILE.toml`")
    );
    let (first, second) = (Up::text(PAIR, "first"), Up::text(PAIR, "second"));
    let shown = success(&["lab", "ls"]);
    assert!(shown.contains("lab first: ") && shown.contains("lab second: "), "{shown}");
    assert!(shown.contains("10.7.0.2/24") && shown.contains("1 veth"), "{shown}");
    assert!(
        failure(&["lab", "down"])
            .contains("several labs are up: first, second; give the name of one")
    );
    assert!(failure(&["lab", "ls", "third"]).contains("\"third\""));
    let folder = tempfile::tempdir().unwrap();
    let again = failure(&["lab", "up", &write(folder.path(), PAIR), "--name", "first"]);
    assert!(again.contains("\"first\"") && again.contains("dray lab down first"), "{again}");

    second.exec_well("a", &["hostname", "changed"]);
    first.down();
    assert_eq!(second.exec_well("a", &["hostname"]), "changed\n");
    assert!(second.state().containers.iter().all(|container| container.running));
    // A container that has ended is reported as such.
    let pid = Pid::from_raw(second.container("b").pid).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    assert!(eventually(|| !second.container("b").running));
    assert!(String::from_utf8_lossy(&second.exec("b", &["true"]).stderr).contains("has ended"));
    assert_eq!(success(&["lab", "down", "--all"]), "lab second is down; nothing of it is left\n");
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
}

#[test]
fn svg_of_file_equals_svg_of_lab() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), &format!("name = 'picture'\n{PAIR}"));
    let up = Up::file(&file, "picture");
    let of_file = success(&["lab", "graph", &file]);
    assert!(of_file.starts_with("<svg ") && of_file.contains("eth0 10.7.0.1/24"), "{of_file}");
    assert_eq!(success(&["lab", "graph"]), of_file);
    let svg = folder.path().join("picture.svg");
    success(&["lab", "graph", "picture", "--output", svg.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(svg).unwrap(), of_file);
    up.down();
}

#[test]
fn all_ends_of_link_reach_each_other() {
    let _alone = alone();
    require_root!();
    check_ends(&["bridge", "macvlan/bridge", "vxlan", "switch-pod"]);
}

#[test]
fn all_ends_of_ovs_reach_each_other_with_dpdk() {
    let _alone = alone();
    require!(SwitchKind::Ovs);
    check_ends(&["ovs/userspace", "ovs-vxlan/userspace"]);
}

fn check_ends(kinds: &[&str]) {
    for kind in kinds {
        let text = format!(
            "[[containers]]\nname = 'a'\n[[containers]]\nname = 'b'\n\
             run = 'dray echo --port udp:10.0.0.2:9000-10.0.0.1:9000'\n\
             [[containers]]\nname = 'c'\n\
             run = 'dray echo --port udp:10.0.0.3:9000-10.0.0.1:9000'\n\
             [[links]]\nkind = '{kind}'\nends = ['a', 'b', 'c']\nnetwork = '10.0.0.0/24'\n"
        );
        let up = Up::text(&text, "many");
        for peer in ["10.0.0.2", "10.0.0.3"] {
            let port = format!("udp:10.0.0.1:9000-{peer}:9000");
            let ping = ["dray", "ping", "--port", &port, "--duration", "0.1"];
            // On a busy machine, the echo may not get to run in time.
            let answered = eventually(|| up.exec("a", &ping).status.success());
            assert!(answered, "{kind}: {peer}");
        }
        up.down();
    }
}

#[test]
fn bypass_of_a_lab_ends_with_it() {
    let _alone = alone();
    require_root!();
    success(&["lab", "clean"]);
    let before = Traces::now();
    for is_killed in [false, true] {
        let up = Up::text(&PAIR.replace("veth", "switch-pod"), "pods");
        up.exec_well("a", &["ping", "-c", "20", "-i", "0.01", "-W", "5", "10.7.0.2"]);
        let ports = success(&["switch", "ports", "--lab", "pods"]);
        assert_eq!(ports.matches("bypass open: the kernel forwarded ").count(), 2, "{ports}");
        assert!(!ports.contains(" forwarded 0 of "), "{ports}");
        // The host does not see where the switch's ends are, so nothing of it can be left there.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains("/cni/netns"), "{mounts}");
        let labs = fs::read_dir("/run/dray").unwrap().flatten();
        let ids = labs.filter_map(|lab| fs::read(lab.path().join("cni/bypass")).ok()).next();
        let ids: BypassIds = serde_json::from_slice(&ids.unwrap()).unwrap();
        let is_loaded = || Bypass::find(ids).unwrap().is_some();
        assert!(is_loaded());
        if is_killed {
            let keeper = Pid::from_raw(up.state().keeper.try_into().unwrap()).unwrap();
            kill_process(keeper, Signal::KILL).unwrap();
            assert!(eventually(|| Traces::now().is_alive_as(&before)), "{:?}", before.changes());
        } else {
            up.down();
            assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
        }
        assert!(eventually(|| !is_loaded()));
    }
    success(&["lab", "clean"]);
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
}

#[test]
fn macvtap_passes_frames() {
    let _alone = alone();
    require_root!();
    let text = "[[containers]]\nname = 'a'\n[[containers]]\nname = 'b'\n\
                run = 'dray receive --port \"$PORT0\"'\n\
                [[links]]\nkind = 'macvtap'\nends = ['a', 'b']\n";
    let up = Up::text(text, "machines");
    assert_eq!(up.container("b").ports[0].uri, "tap:eth0");
    let send = "dray send --port $PORT0 --dst-mac $PEER_MAC0 --rate 1k --duration 0.2";
    let sent = up.exec_well("a", &["sh", "-c", send]);
    let sent = sent.split_whitespace().nth(1).unwrap().to_owned();
    sleep(Duration::from_millis(100));
    up.exec_well("b", &["sh", "-c", "kill -INT -1"]);
    assert!(eventually(|| up.container("b").program.unwrap().ended.is_some()));
    let report = fs::read_to_string(up.container("b").program.unwrap().log).unwrap();
    let report = report.lines().last().unwrap_or_default();
    assert!(sent != "0" && report.starts_with(&format!("received {sent} frames")), "{report}");
    up.down();
}

#[test]
fn invalid_topology_creates_nothing() {
    let _alone = alone();
    require_root!();
    let forward = "run = 'dray forward --from raw:eth0 --to raw:eth1 --both-ways'\n";
    let ring = PAIR.replace("'a'\n", &format!("'a'\n{forward}"));
    let ring = ring.replace("name = 'b'\n", &format!("name = 'b'\n{forward}"));
    // The invalid topology, the line of the error, and the message.
    let cases = [
        (
            PAIR.replace("name = 'b'", "name = 'a'"),
            4,
            "duplicate container name \"a\"; give each its own",
        ),
        (
            format!("{PAIR}addresses = ['10.7.0.1', '10.8.0.1']\n"),
            9,
            "address \"10.8.0.1\": outside the network 10.7.0.0/24; give 10.7.0.1 to 10.7.0.254",
        ),
        (PAIR.replace("'veth'", "'vteh'"), 6, "unknown link kind \"vteh\": did you mean veth?"),
        (PAIR.replace("'b']", "'c']"), 7, "unknown container \"c\": give one of a, b, host"),
        (
            format!("{ring}[[links]]\nkind = 'veth'\nends = ['a', 'b']\n"),
            3,
            "forwarders in a cycle: a, b and back to a; frames would loop forever: leave out a \
             link, or make one forward in one direction only",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    // A directory that existed only for a moment changes its parent's modification time.
    let changed = || fs::metadata("/run/dray").and_then(|parent| parent.modified()).ok();
    let before = (Traces::now(), changed());
    for (text, line, what) in cases {
        let file = write(folder.path(), &text);
        let output = dray(&["lab", "up", &file]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(&format!("dray: {file}:{line}: {what}")), "{said}");
        assert_eq!((said.lines().count(), output.status.code()), (1, Some(2)), "{said}");
        assert!(output.stdout.is_empty(), "{said}");
        assert_eq!((Traces::now(), changed()), before, "{said}");
    }
}

#[test]
fn failed_lab_up_leaves_nothing() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        let file = write(folder.path(), text);
        let output = dray(&["lab", "up", &file]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        (output.status.code(), said)
    };
    // Found before anything is created, by the same rules as on the command line.
    let (code, said) =
        refused(&format!("{PAIR}[[containers]]\nname = 'c'\nrun = 'dray recieve'\n"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("topology.toml:11: ") && said.contains("recieve"), "{said}");
    before.assert_unchanged();
    // Found when the program is started.
    let run = "[[containers]]\nname = 'c'\nrun = 'dray receive --port raw:eth9'\n";
    let (code, said) = refused(&format!("{PAIR}{run}"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("container c: ") && said.contains("eth9"), "{said}");
    let (code, said) = refused(&PAIR.replace("'veth'", "'sriov'\nparent = 'eth99'"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no SR-IOV card: eth99: "), "{said}");
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
    assert_eq!(success(&["lab", "ls"]), "no lab is up\n");
}

#[test]
fn interrupted_lab_up_leaves_nothing() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), PAIR);
    for moment in [0, 5, 10, 20, 40] {
        let mut up = common::command();
        let mut up = up.args(["lab", "up", &file]).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_millis(moment));
        // The lab may be up already.
        let _ = kill_process(Pid::from_child(&up), Signal::INT);
        if up.wait().unwrap().success() {
            success(&["lab", "down"]);
        }
        assert!(eventually(|| before.changes().is_empty()), "{moment} ms: {:?}", before.changes());
    }
}

#[test]
fn killed_keeper_leaves_nothing() {
    let _alone = alone();
    require_root!();
    success(&["lab", "clean"]);
    let before = Traces::now();
    let up = Up::text(&format!("{PAIR}[[containers]]\nname = 'c'\nrun = 'sleep 1000'\n"), "killed");
    let state = up.state();
    let log = state.containers.iter().find_map(|container| container.program.clone()).unwrap().log;
    let keeper = Pid::from_raw(state.keeper.try_into().unwrap()).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
    assert!(eventually(|| Traces::now().is_alive_as(&before)), "{:?}", Traces::now());
    // The name is free again, and the next start removes what is left.
    assert!(eventually(|| success(&["lab", "ls"]) == "no lab is up\n"));
    assert!(Path::new(&log).exists());
    let up = Up::text(PAIR, "killed");
    assert!(!Path::new(&log).exists());
    up.down();
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
}

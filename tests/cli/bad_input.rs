//! Every invalid request gets one clear line and the right exit status, and leaves nothing behind.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{DRAY, Traces, alone, dray};

/// Arguments, and what the message must contain: the given value and the allowed ones.
const WRONG: &[(&[&str], &[&str])] = &[
    (&["bench", "nosuch"], &["\"nosuch\"", "dray bench --list"]),
    (&["bench", "veth/udp"], &["\"veth/udp\"", "--technique veth/udp"]),
    (&["bench", "podman"], &["\"podman\"", "--runtime podman"]),
    (&["bench", "--size", "64,128,64"], &["--size 64", "given twice"]),
    (&["bench", "--runtime", "runc,runc"], &["--runtime runc", "given twice"]),
    (&["bench", "--mtu", "jumbo"], &["'jumbo'", "--mtu", "whole number"]),
    (&["bench", "--trials", "1.5"], &["'1.5'", "--trials", "whole number"]),
    (&["bench", "selfcheck", "--summary"], &["selfcheck", "--json"]),
    (&["bench", "paper-all", "--summary"], &["--summary", "paper-all", "dray report"]),
    (&["bench", "--cable", "10X"], &["10X", "for example 10G"]),
    (&["bench", "--cable", "10G", "--technique", "veth"], &["--cable 10000000000", "hosts/bridge"]),
    (&["bench", "--parent", "nosuch0"], &["--parent nosuch0", "available", "lo"]),
    (&["bench", "paper-all", "--json", "/dev/null"], &["--json /dev/null", "takes a folder"]),
    (&["report", "Cargo.toml", "-o", "report.pdf"], &["-o report.pdf", ".md, .csv, .txt, .svg"]),
    (&["bench", "--technique", "tokenring"], &["\"tokenring\"", "veth/udp", "dray bench --list"]),
    (&["bench", "--technique", "veth/udp,x"], &["\"x\"", "LINK/ENDPOINT"]),
    (&["bench", "--technique", "veth/virtio"], &["veth/virtio", "do not go together"]),
    (&["bench", "--check", "half"], &["half", "whole"]),
    (&["bench", "switches", "--rate", "1M"], &["dpdk", "cannot send at a given rate"]),
    (&["bench", "ara2019-fig2", "--technique", "ipvlan/l2"], &["ipvlan/l2", "switch/patch"]),
    (
        &["bench", "casoni2013-serial", "--technique", "udp"],
        &["udp", "casoni2013", "links veth, bridge, switch/patch, switch/learning, testpmd/pairs"],
    ),
    (&["bench", "--loss", "1"], &["'1'", "from 0 to below 1"]),
    (&["bench", "--loss", "0,-1%"], &["'-1%'", "from 0 to below 1"]),
    (&["bench", "--loss", "0", "--rate", "100k"], &["--loss", "--rate", "100000"]),
    (
        &["bench", "switches", "--loss", "0", "--technique", "dpdk"],
        &["dpdk", "cannot send at a given rate"],
    ),
    (&["bench", "--size", "63"], &["63", "64 to 1514", "MTU 1500"]),
    (&["bench", "--size", "64,1515"], &["1515", "64 to 1514"]),
    (&["bench", "--size", "9015", "--mtu", "9000"], &["9015", "64 to 9014"]),
    (&["bench", "--size", "big"], &["big"]),
    (&["bench", "--rate", "0"], &["'0'", "more than 0"]),
    (&["bench", "--rate", "-5k"], &["-5k"]),
    (&["bench", "--burst", "0"], &["--burst 0", "1 to 256"]),
    (&["bench", "--burst", "257"], &["257", "1 to 256"]),
    (&["bench", "--flows", "0"], &["--flows 0", "1 to"]),
    (&["bench", "--stations", "0"], &["--stations 0", "1 to"]),
    (&["bench", "--stations", "2"], &["--stations 2", "veth/udp", "one station"]),
    (
        &["bench", "--technique", "raw", "--stations", "2", "--flows", "2"],
        &["--stations 2", "--flows 1"],
    ),
    (
        &["send", "--port", "null:", "--stations", "2", "--flows", "2"],
        &["--stations 2", "--flows 2"],
    ),
    (&["bench", "--trials", "0"], &["--trials 0", "1 to"]),
    (&["bench", "--duration", "0"], &["'0'", "above 0"]),
    (&["bench", "--duration", "0.1"], &["0.1", "0.2 to 3600"]),
    (&["bench", "--seed", "-1"], &["-1"]),
    (&["bench", "selfcheck", "--quick"], &["selfcheck", "allowed is --json"]),
    (&["bench", "paper-all", "--size", "64"], &["paper-all takes --quick", "--resume FOLDER"]),
    (&["bench", "paper-all", "--json", "a", "--resume", "a"], &["--resume", "leave out --json"]),
    (&["bench", "paper-all", "--trials", "0"], &["--trials 0", "1 to"]),
    (&["receive", "--port", "impair:drop=0:null:"], &["drop=0", "from 1"]),
    (&["receive", "--port", "impair:drop=9"], &["a plan and a port"]),
    (&["bench", "--mtu", "67"], &["67", "68 to 9000"]),
    (&["bench", "--cpus", "4095"], &["4095", "may use CPUs"]),
    (&["bench", "--cpus", "x"], &["'x'", "list of CPUs"]),
    (&["bench", "--nosuch"], &["--nosuch"]),
    (&["nosuch"], &["nosuch"]),
    (&["send", "--port", "foo:eth0"], &["foo", "raw:eth0"]),
    (&["send", "--port", "raw:eth0?bach=1"], &["bach", "batch, wait, pause"]),
    (&["send", "--port", "raw:eth0?batch=x"], &["batch=x", "1 to 256"]),
    (&["send", "--port", "null:", "--size", "63"], &["63", "64 to 9014"]),
    (&["send", "--port", "null:", "--size", "9015"], &["9015", "64 to 9014"]),
    (&["send", "--port", "null:", "--rate", "0"], &["'0'", "more than 0"]),
    (&["send", "--port", "null:", "--rate", "10G"], &["'10G'", "10Gpps", "10Gbit"]),
    (&["send", "--port", "null:", "--rate", "1Gbps"], &["'1Gbps'", "1.5Mpps", "10Gbit"]),
    (&["send", "--port", "null:", "--count", "0"], &["'0'", "1 or more"]),
    (&["send", "--port", "tcp:127.0.0.1:9", "--count", "1"], &["tcp:127.0.0.1:9", "--count"]),
    (&["receive", "--port", "null:", "--interval", "0.01"], &["'0.01'", "0.1 to 3600"]),
    (&["send", "--port", "null:", "--burst", "0"], &["0", "1 to 256"]),
    (&["send", "--port", "null:", "--cpu", "4095", "--duration", "1"], &["4095", "may use CPUs"]),
    (&["send", "--port", "null:", "--dst-mac", "1:2"], &["1:2", "six hexadecimal octets"]),
    (&["send", "--port", "udp:127.0.0.1:0"], &["udp:127.0.0.1:0", "only receives"]),
    (&["echo", "--port", "udp:127.0.0.1:0"], &["udp:127.0.0.1:0", "only receives"]),
    (&["ping", "--port", "udp:127.0.0.1:0"], &["udp:127.0.0.1:0", "only receives"]),
    (&["ping", "--port", "null:", "--size", "63"], &["63", "64"]),
    (&["ping", "--port", "null:", "--rate", "0"], &["--rate", "0"]),
    (
        &["send", "--port", "udp:127.0.0.1:0-127.0.0.1:9", "--flows", "2"],
        &["its socket's flow", "not 2"],
    ),
    (&["bench", "--flows", "2"], &["--flows 2", "veth/udp", "one flow"]),
    (&["send"], &["--port"]),
    (&["receive", "--port", "udp:10.0.0.1"], &["10.0.0.1", "ADDRESS:PORT"]),
    (&["forward", "--from", "null:"], &["--to"]),
    (&["forward", "--from", "raw:lo", "--to", "raw:lo?batch=8"], &["raw:lo", "interface lo"]),
    (
        &["receive", "--port", "raw:lo", "--port", "impair:drop=2:raw:lo"],
        &["interface lo", "twice"],
    ),
    (&["echo", "--port", "null:x"], &["null:"]),
    (&["lab", "up", "no-such.toml"], &["no-such.toml", "No such file"]),
    (&["lab", "up", "Cargo.toml", "--name", "a/b"], &["a/b", "A-Z a-z 0-9 _ -"]),
    (&["lab", "exec", "a"], &["<COMMAND>"]),
    (&["switch", "--mode", "swich"], &["'swich'", "give one of patch, learning"]),
    (&["switch", "--flow", "backpressure"], &["\"backpressure\"", "only in mode \"patch\""]),
    (&["switch", "--cpus", "4095"], &["CPU 4095 is not available", "give some of"]),
    (&["switch", "--idle", "50"], &["\"50\"", "50us", "never"]),
    (&["switch", "--port", "null:"], &["null:", "NAME=URI"]),
    (&["switch", "--port", "a=foo:"], &["\"foo\"", "raw:eth0"]),
    (&["switch", "--port", "a=null:,vlan=4095"], &["vlan=4095", "1 to 4094"]),
    (&["switch", "--port", "a=null:", "--port", "a=null:"], &["\"a\"", "taken"]),
    (&["switch", "--port", "a=null:,pair=b"], &["pair", "only in mode \"patch\""]),
    (
        &["switch", "--control", "/nosuch/switch.sock"],
        &["/nosuch/switch.sock", "no such directory"],
    ),
    (&["switch", "--config", "/nosuch.toml"], &["/nosuch.toml"]),
    (&["switch", "add-port", "a"], &["<URI>"]),
    (&["switch", "add-port", "a", "null:", "--native", "1"], &["native", "trunk"]),
    (&["switch", "add-port", "a", "null:", "--vlan", "0"], &["--vlan <VLAN>", "1 to 4094"]),
    (
        &["switch", "add-port", "a", "null:", "--spoof-check", "1"],
        &["--spoof-check <BOOL>", "true or false"],
    ),
    (&["switch", "del-port", "a/b"], &["a/b", "A-Z a-z 0-9"]),
    // The interface exists, but the frame does not fit its MTU.
    (&["send", "--port", "udp:127.0.0.1:0-127.0.0.1:9", "--size", "9015"], &["9015"]),
];

#[test]
fn usage_error_is_one_line_and_status_2() {
    let _alone = alone();
    let before = Traces::now();
    for (arguments, parts) in WRONG {
        let output = dray(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        let what = format!("dray {}: {message}", arguments.join(" "));
        assert_eq!(output.status.code(), Some(2), "{what}");
        assert_eq!(message.lines().count(), 1, "{what}");
        assert!(message.starts_with("dray: "), "{what}");
        assert!(output.stdout.is_empty(), "{what}");
        for part in *parts {
            assert!(message.contains(part), "no {part:?} in {what}");
        }
    }
    before.assert_unchanged();
}

/// Correct usage that this machine does not support: status 1.
#[test]
fn unsupported_request_is_one_line_and_status_1() {
    let _alone = alone();
    for (arguments, parts) in [
        (&["receive", "--port", "raw:nosuch0"][..], &["raw:nosuch0", "ip link"][..]),
        (&["receive", "--port", "udp:192.0.2.1:9"], &["udp:192.0.2.1:9", "local address"]),
        (
            &["receive", "--port", "vhost:/nosuch/a.sock"],
            &["vhost:/nosuch/a.sock", "no such directory: /nosuch"],
        ),
        (
            &["send", "--port", "virtio:/nosuch/a.sock"],
            &["virtio:/nosuch/a.sock", "no such directory: /nosuch"],
        ),
        (&["send", "--port", "memif:/dev/null"], &["memif:/dev/null", "is not a socket"]),
        (
            &["receive", "--port", "unix:/nosuch/a"],
            &["unix:/nosuch/a", "no such directory: /nosuch"],
        ),
        (&["switch", "ports", "--control", "/nosuch.sock"], &["/nosuch.sock", "dray switch"]),
        (&["bench", "--json", "/nosuch/folder/x.json"], &["/nosuch/folder/x.json"]),
    ] {
        let output = dray(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in parts {
            assert!(message.contains(part), "no {part:?} in {message}");
        }
    }
}

#[test]
fn missing_root_is_reported() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    // Other users may have no access to the checkout's folder.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("dray");
    std::fs::copy(DRAY, &program).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for arguments in [
        &["bench", "--quick"][..],
        &["receive", "--port", "raw:lo"],
        &["receive", "--port", "tap:dray-tap0"],
        &["lab", "ls"],
    ] {
        let nobody = 65534;
        let output = Command::new(&program)
            .args(arguments)
            .current_dir("/")
            .uid(nobody)
            .gid(nobody)
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("root"), "{message}");
        let is_tap = arguments.contains(&"tap:dray-tap0");
        assert_eq!(message.contains("CAP_NET_ADMIN, so"), is_tap, "{message}");
    }
    before.assert_unchanged();
}

#[test]
fn capability_that_root_lacks_is_named() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    for arguments in ["bench --quick --technique veth/raw", "lab up examples/ara2019.toml"] {
        let output = Command::new("setpriv")
            .args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", DRAY])
            .args(arguments.split(' '))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()
            .expect("setpriv, of package util-linux");
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in ["CAP_SYS_ADMIN", "which root lacks", "--privileged"] {
            assert!(message.contains(part), "no {part:?} in {message}");
        }
    }
    before.assert_unchanged();
}

#[test]
fn limit_on_locked_memory_is_named() {
    let _alone = alone();
    require_root!();
    let script = "ip link set lo up && ulimit -l 64 && exec setpriv --bounding-set -ipc_lock \
                  --inh-caps -ipc_lock \"$0\" receive --port afxdp:lo --duration 1";
    let unshare = Command::new("unshare").args(["--net", "sh", "-c", script, DRAY]).output();
    let output = unshare.expect("unshare, of package util-linux");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in ["XDP_UMEM_REG", "`ulimit -l`", "CAP_IPC_LOCK"] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}

#[test]
fn run_without_any_figure_fails_with_the_reasons() {
    let _alone = alone();
    require_root!();
    let words = "bench switches --quick --technique vpp,snabb --size 64 --trials 1 --duration 0.2";
    let mut command = crate::common::command();
    let output = command.args(words.split(' ')).env("PATH", "/nosuch").output().unwrap();
    let [table, message] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(table.contains("skipped"), "the notes say why as well: {table}");
    let last = message.lines().last().unwrap();
    assert!(last.starts_with("dray: nothing could be measured: vpp/learning"), "{message}");
    assert!(last.contains("; snabb/pairs"), "{message}");
}

#[test]
fn switch_raises_and_reports_open_file_limit() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // The last of 40 ports fails after the sockets of the others were created, which all fit.
    let no_directory = "vhost:/nosuch/folder/socket";
    let in_folder = format!("vhost:{}", folder.path().join("last").display());
    let message = |most: u32, last: &str| {
        let limits = format!("ulimit -Sn 40 && ulimit -Hn {most} && exec \"$@\"");
        let socket = |name: &str| folder.path().join(name).display().to_string();
        let mut command = Command::new("sh");
        command.args(["-c", &limits, "sh", DRAY, "switch", "--control", &socket("control")]);
        for number in 1..40 {
            let name = format!("p{number}");
            command.args(["--port", &format!("{name}=vhost:{}", socket(&name))]);
        }
        let output = command.args(["--port", &format!("last={last}")]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let enough = message(1000, no_directory);
    assert!(enough.contains(no_directory), "{enough}");
    let too_few = message(100, &in_folder);
    assert!(too_few.contains("several file descriptors, so raise the limit"), "{too_few}");
    // The log tells besides as which user the switch runs.
    let errors = too_few.lines().filter(|line| !line.contains(" INFO "));
    assert_eq!(errors.count(), 1, "{too_few}");
}

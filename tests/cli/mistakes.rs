//! Mistakes of a first hour: each gets one line that says what would be right.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::{self, alone};

/// Files that mistakes are made with.
const FILES: &[(&str, &str)] = &[
    ("cut.json", "{\"schema\": 1,"),
    ("notes.txt", "measured on Monday\n"),
    (
        "typo.toml",
        "[[containers]]\nname = \"a\"\n\n[[containers]]\nname = \"b\"\nrunn = \"true\"\n",
    ),
    (
        "kind.toml",
        "[[containers]]\nname = \"a\"\n[[containers]]\nname = \"b\"\n\
         [[links]]\nkind = \"brigde\"\nends = [\"a\", \"b\"]\n",
    ),
    (
        "end.toml",
        "[[containers]]\nname = \"sender\"\n[[links]]\nkind = \"veth\"\nends = [\"sender\", \"hots\"]\n",
    ),
    ("type.toml", "[[containers]]\nname = \"a\"\ncpus = \"0\"\n"),
    ("nameless.toml", "[[containers]]\nrun = \"true\"\n"),
    ("quote.toml", "name = \"lab\n"),
    ("mode.toml", "mode = \"swich\"\n"),
    ("prots.toml", "prots = []\n"),
    ("age.toml", "age_s = \"long\"\n"),
    ("n3.toml", "[n3]\nmac = \"02:00:00:00:03:01\"\nadresses = [\"10.0.3.1\"]\n"),
    ("sessions.toml", "sessions_max = 10\n"),
];

/// Command lines, and the messages that they get.
const MISTAKES: &[(&str, &str)] = &[
    // Names of techniques.
    ("bench --technique vet/udp", "unknown technique \"vet/udp\": did you mean veth/udp?"),
    ("bench --technique swich", "unknown technique \"swich\": did you mean switch?"),
    (
        "bench --technique veth/upd-mmsg",
        "unknown technique \"veth/upd-mmsg\": did you mean veth/udp-mmsg?",
    ),
    ("bench --technique rwa", "unknown technique \"rwa\": did you mean raw?"),
    (
        "bench --technique tokenring",
        "unknown technique \"tokenring\": give LINK, ENDPOINT or LINK/ENDPOINT, for example veth/udp; \
         dray bench --list shows all links and endpoints",
    ),
    (
        "bench --technique veth/virtio",
        "technique veth/virtio: these do not go together; veth goes with udp, udp-mmsg, raw, raw-mmsg, \
         udp-zerocopy, raw-ring, afxdp, afxdp-deferred, ...; virtio goes with direct, switch/patch, \
         switch/learning, switch-vxlan/patch, testpmd/pairs, ovs-dpdk/pairs, ovs-dpdk/learning, \
         vpp/learning, ...",
    ),
    (
        "bench --technique switch/tap",
        "technique switch/tap: these do not go together; switch goes with virtio, virtio-packed, dpdk, \
         dpdk-packed, ns3-virtio, ns3-virtio-bare; tap goes with veth, bridge, macvtap, \
         hosts/bridge, vxlan, geneve, xdp/pairs, xdp/learning, ...",
    ),
    // Techniques of other experiments.
    (
        "bench --technique testpmd/pairs",
        "experiment all does not measure testpmd/pairs; testpmd/pairs is measured by: dray bench \
         switches --technique testpmd/pairs (also in loss-free, rtt, ara2019-fig2, ara2019-fig3, \
         casoni2013-incremental, casoni2013-serial, casoni2013-parallel, casoni2013-sender-load, ...)",
    ),
    (
        "bench --technique vpp/memif",
        "experiment all does not measure vpp/memif; vpp/memif is measured by: dray bench switches \
         --technique vpp/memif (also in loss-free, rtt, ara2019-fig2, ara2019-fig3, \
         casoni2013-incremental, casoni2013-serial, casoni2013-parallel, casoni2013-sender-load, ...)",
    ),
    (
        "bench --technique veth/smc",
        "experiment all does not measure veth/smc; veth/smc is measured by: dray bench streams \
         --technique veth/smc",
    ),
    (
        "bench --technique vxlan/smc",
        "experiment all does not measure vxlan/smc; no experiment does; smc on other links is measured \
         by: dray bench streams --technique smc",
    ),
    (
        "bench streams --technique bridge/raw",
        "experiment streams does not measure bridge/raw; it measures links veth, bridge, \
         switch-pod, switch-tap/learning, switch-tap/patch with endpoints tcp, tcp-zerocopy, tcp-sockmap, smc, iperf3, iperf3-udp; bridge/raw is measured by: dray bench --technique \
         bridge/raw (also in loss-free, rtt, latency, ara2019-table1, liang2016-latency, \
         liang2016-setup)",
    ),
    // Names of experiments.
    ("bench swiches", "unknown experiment \"swiches\": did you mean switches?"),
    ("bench ara2019-tabel1", "unknown experiment \"ara2019-tabel1\": did you mean ara2019-table1?"),
    (
        "bench veth/udp",
        "unknown experiment \"veth/udp\": this is a technique: give --technique veth/udp",
    ),
    ("bench podman", "unknown experiment \"podman\": this is a runtime: give --runtime podman"),
    (
        "bench throughput",
        "unknown experiment \"throughput\": `dray bench --list` shows the experiments",
    ),
    // Options.
    ("selfcheck", "\"selfcheck\" is an experiment: give `dray bench selfcheck`"),
    ("bnech", "unrecognized subcommand 'bnech': did you mean bench?"),
    ("bench --tecnique veth", "unexpected argument '--tecnique' found: did you mean --technique?"),
    (
        "send raw:eth0",
        "unexpected argument 'raw:eth0' found: give a port as --port URI, for example --port raw:eth0",
    ),
    (
        "send -p eth0",
        "invalid value 'eth0' for '--port <URI>': no scheme: for an interface give raw:eth0",
    ),
    (
        "receive -p /run/dray/a.sock",
        "invalid value '/run/dray/a.sock' for '--port <URI>': no scheme: for a socket give \
         vhost:/run/dray/a.sock, virtio:/run/dray/a.sock, memif:/run/dray/a.sock or \
         unix:/run/dray/a.sock",
    ),
    (
        "receive -p raw:eth0?bach=64",
        "invalid value 'raw:eth0?bach=64' for '--port <URI>': unknown key \"bach\": did you mean batch? \
         raw: takes batch, wait, pause, ethertype, promisc, queues, ring, offload",
    ),
    (
        "switch a=raw:eth0?wait=spin",
        "invalid value 'a=raw:eth0?wait=spin' for '[NAME=URI]...': wait=spin: allowed is block or poll",
    ),
    (
        "switch a=raw:eth0,valn=10",
        "invalid value 'a=raw:eth0,valn=10' for '[NAME=URI]...': unknown key \"valn\": did you mean \
         vlan? a port takes vlan, trunk, native, group, pair, mirror, mac, spoof_check, rate_in, \
         rate_out, storm, reserved, burst",
    ),
    (
        "switch --mode ptach",
        "invalid value 'ptach' for '--mode <MODE>': \"ptach\": did you mean patch?",
    ),
    (
        "send -p null: --dst-ip 10.0.2",
        "invalid value '10.0.2' for '--dst-ip <IP>': give four numbers, for example 198.18.0.1",
    ),
    (
        "send -p null: -b 10T",
        "invalid value '10T' for '--bitrate <BITS>': give bits per second, more than 0, such as 500M or \
         10G",
    ),
    (
        "send -p null: -b 1G -r 1M",
        "the argument '--bitrate <BITS>' cannot be used with '--rate <RATE>'",
    ),
    (
        "forward --from raw:lo --to raw:lo",
        "--from raw:lo and --to raw:lo both use interface lo: give two ports",
    ),
    (
        "switch a=raw:lo b=raw:lo",
        "port \"b\": interface lo is already used by port \"a\"; give each port its own",
    ),
    (
        "upf --n3 raw:lo --n6 raw:lo --config n3.toml",
        "--n3 and --n6 both use interface lo: give two ports",
    ),
    (
        "bench --report page.pdf",
        "invalid value 'page.pdf' for '--report <FILE>': give .html; `dray report` writes other formats",
    ),
    ("send -p null: -s 1O", "invalid value '1O' for '--size <BYTES>': give a whole number"),
    ("send -p null: -P 0", "invalid value '0' for '--flows <FLOWS>': give 1 to 16384"),
    ("send -p null: -P 70000", "invalid value '70000' for '--flows <FLOWS>': give 1 to 16384"),
    (
        "send -p null: -r 10G",
        "invalid value '10G' for '--rate <RATE>': frames or bits? give 10Gbit, or 10Gpps",
    ),
    (
        "send -p null: -c 1G",
        "invalid value '1G' for '--count <FRAMES>': give a number of frames, 1 or more, such as 1000, \
         20k or 1M",
    ),
    (
        "switch vhost:/run/dray/a.sock",
        "invalid value 'vhost:/run/dray/a.sock' for '[NAME=URI]...': a port needs a name: \
         a=vhost:/run/dray/a.sock",
    ),
    (
        "bench --runtime dokcer",
        "invalid value 'dokcer' for '--runtime <LIST>': did you mean docker?",
    ),
    (
        "doctor --everything",
        "unexpected argument '--everything' found: `dray doctor --help` shows what there is",
    ),
    (
        "switch add-port a null: --tag 5",
        "unexpected argument '--tag' found: `dray switch add-port --help` shows what there is",
    ),
    ("bench --size 64,64", "--size 64: given twice; give each value once"),
    (
        "bench --loss 5",
        "invalid value '5' for '--loss <LIST>': give a share from 0 to below 1, for example 0, 0.005 or \
         0.5%",
    ),
    (
        "bench rtt --pairs 2",
        "--pairs: rtt has roles other than sender and receiver; leave out --pairs",
    ),
    ("bench --force", "the following required arguments were not provided: --json <FILE>"),
    // Files of results.
    (
        "bench --json notes.txt",
        "--json notes.txt: already exists; give another name, --force to replace it, or --resume to \
         continue the run that wrote it",
    ),
    (
        "bench selfcheck --json notes.txt",
        "--json notes.txt: already exists; give another name, --force to replace it, or --resume to \
         continue the run that wrote it",
    ),
    ("report nosuch.json", "nosuch.json: cannot be read: No such file or directory (os error 2)"),
    ("report cut.json", "cut.json: cut short: the JSON ends unfinished at line 1"),
    (
        "bench --baseline notes.txt",
        "notes.txt: not JSON: expected value at line 1 column 1; give a file that `dray bench --json` \
         wrote",
    ),
    ("compare cut.json", "the following required arguments were not provided: <B>"),
    // Files of labs, switches and user plane functions.
    ("lab up typo.toml", "typo.toml:6: containers[1]: unknown key \"runn\": did you mean run?"),
    ("lab up kind.toml", "kind.toml:6: unknown link kind \"brigde\": did you mean bridge?"),
    ("lab up end.toml", "end.toml:5: unknown container \"hots\": did you mean host?"),
    ("lab up type.toml", "type.toml:3: containers[0].cpus: \"0\": give a list in [ ]"),
    ("lab up nameless.toml", "nameless.toml:1: containers[0]: key \"name\" is missing"),
    (
        "lab up n3.toml",
        "n3.toml:1: this configures a user plane function: use `dray upf --n3 URI --n6 URI --config FILE`",
    ),
    (
        "switch --config mode.toml",
        "mode.toml: line 1: mode: \"swich\": give one of patch, learning",
    ),
    (
        "switch --config prots.toml",
        "prots.toml: line 1: unknown key \"prots\": did you mean ports?",
    ),
    ("switch --config age.toml", "age.toml: line 1: age_s: \"long\": give a whole number"),
    (
        "switch --config typo.toml",
        "typo.toml: line 1: this configures a lab: use `dray lab up FILE`",
    ),
    (
        "upf --n3 raw:lo --n6 raw:eth9 --config n3.toml",
        "n3.toml: line 3: n3: unknown key \"adresses\": did you mean addresses?",
    ),
    (
        "upf --n3 null: --n6 null: --config sessions.toml",
        "sessions.toml: line 1: key \"n3\" is missing at the top level",
    ),
    // Sockets that roles and switches cannot use.
    (
        "receive --port virtio:nosuch/a.sock",
        "port virtio:nosuch/a.sock: connect: no such directory: nosuch",
    ),
    (
        "ping --port memif:notes.txt",
        "port memif:notes.txt: connect: notes.txt is not a socket but a regular file",
    ),
    (
        "echo --port vhost:notes.txt",
        "port vhost:notes.txt: socket: this path exists and is not a socket",
    ),
    (
        "send --port unix:a.sock?peer=nosuch/b.sock",
        "port unix:a.sock?peer=nosuch/b.sock: connect: no such directory: nosuch",
    ),
    (
        "receive --port tcp:127.0.0.1:9000 --count 5",
        "--port tcp:127.0.0.1:9000: byte streams have no frames: leave out --count",
    ),
    (
        "switch --control c.sock a=vhost:c.sock",
        "port \"a\": c.sock is the switch's control socket; give another path",
    ),
    (
        "upf --control c.sock --n3 vhost:c.sock --n6 null: --config n3.toml",
        "vhost:c.sock: this path is that of the control socket; give another one",
    ),
    ("lab exec sender true", "unexpected argument 'true' found: give -- before the command"),
];

/// A lab, and mistakes with it.
const LAB: &str = "\
[[containers]]
name = \"sender\"

[[containers]]
name = \"receiver\"
run = \"dray receive --port raw:eth0\"

[[links]]
kind = \"veth\"
ends = [\"sender\", \"receiver\"]
";
const MISTAKES_IN_LAB: &[(&str, &str)] = &[
    ("lab logs reciever", "lab mistakes: no such container: \"reciever\"; did you mean receiver?"),
    (
        "lab logs switch",
        "lab mistakes: no such container: \"switch\"; give one of host, sender, receiver",
    ),
    (
        "lab logs sender",
        "lab mistakes: container sender has no `run` command; give one of receiver",
    ),
    ("lab exec sendr -- true", "lab mistakes: no such container: \"sendr\"; did you mean sender?"),
    ("lab down mistake", "no such lab: \"mistake\"; labs that are up: mistakes"),
    ("lab logs --lab mistake", "no such lab: \"mistake\"; labs that are up: mistakes"),
    ("switch ports --lab mistake", "no such lab: \"mistake\"; labs that are up: mistakes"),
    ("switch ports --lab mistakes", "lab mistakes: no `dray switch` runs in its containers"),
    (
        "upf stats --lab mistakes/sendr",
        "lab mistakes: no such container: \"sendr\"; did you mean sender?",
    ),
    (
        "lab up mistakes.toml",
        "lab \"mistakes\" is already up: take it down with `dray lab down mistakes`, or give this one \
         another name with --name",
    ),
];

/// Commands without a lab, as after the second `dray lab down`.
const WITHOUT_LAB: [&str; 6] = [
    "lab down",
    "lab down mistakes",
    "lab logs",
    "lab logs --lab mistakes receiver",
    "lab exec sender -- true",
    "switch ports --lab mistakes",
];

#[test]
fn mistake_error_is_one_line_with_what_is_allowed() {
    assert!(MISTAKES.len() >= 40, "{}", MISTAKES.len());
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        fs::write(folder.path().join(name), text).unwrap();
    }
    check_all(folder.path(), MISTAKES.iter().copied());
    // Nothing was written.
    let notes = fs::read_to_string(folder.path().join("notes.txt")).unwrap();
    assert_eq!(notes, FILES[1].1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), FILES.len());
}

#[test]
fn lab_mistake_error_is_one_line_with_what_is_allowed() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mistakes.toml"), LAB).unwrap();
    let run = |line: &str| {
        let mut command = common::command();
        command.args(line.split(' ')).current_dir(folder.path()).output().unwrap()
    };
    let none = "no lab is up; start one with `dray lab up FILE.toml`";
    check_all(folder.path(), WITHOUT_LAB.map(|line| (line, none)));
    let up = run("lab up mistakes.toml");
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let checked =
        std::panic::catch_unwind(|| check_all(folder.path(), MISTAKES_IN_LAB.iter().copied()));
    assert!(run("lab down mistakes").status.success());
    checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    check_all(folder.path(), WITHOUT_LAB.map(|line| (line, none)));
    let down = run("lab down --all");
    assert_eq!((down.status.code(), &down.stdout[..]), (Some(0), &b"no lab is up\n"[..]));
}

/// Mistakes of a user who is not root; `{}` is a directory that this user cannot write to, with a
/// socket that this user cannot connect to.
const OF_A_USER: &[(&str, &str)] = &[
    (
        "receive --port virtio:{}/a.sock",
        "port virtio:{}/a.sock: connect: Permission denied (os error 13); this needs write permission \
         for the socket and access to its directory",
    ),
    (
        "receive --port vhost:{}/b.sock",
        "port vhost:{}/b.sock: socket: Permission denied (os error 13); this needs write permission \
         for the socket's directory",
    ),
    (
        "switch --control {}/c.sock",
        "control = \"{}/c.sock\": cannot write in \"{}\": Permission denied (os error 13); give \
         another path with --control",
    ),
    (
        "receive --port afxdp:lo",
        "port afxdp:lo: XDP program: Operation not permitted (os error 1); this needs CAP_BPF and \
         CAP_NET_ADMIN, so run it as root",
    ),
];

#[test]
fn permission_error_is_one_line_with_remedy() {
    let _alone = alone();
    require_root!();
    // Other users may have no access to the checkout's folder.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("dray");
    fs::copy(common::DRAY, &program).unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let _socket = UnixListener::bind(folder.path().join("a.sock")).unwrap();
    let place = folder.path().display().to_string();
    for (line, expected) in OF_A_USER {
        let [line, expected] = [line, expected].map(|text| text.replace("{}", &place));
        let mut command = Command::new(&program);
        let output =
            command.args(line.split(' ')).current_dir("/").uid(65534).gid(65534).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("dray: {expected}\n"), "dray {line}");
        assert!(matches!(output.status.code(), Some(1 | 2)), "dray {line}: {}", output.status);
    }
}

/// Checks that each command line gets its message, and status 1 or 2.
fn check_all<'m>(folder: &Path, mistakes: impl IntoIterator<Item = (&'m str, &'m str)>) {
    let mut wrong = Vec::new();
    for (line, expected) in mistakes {
        let (status, said) = dray_in(folder, line);
        if said != format!("dray: {expected}\n") || !matches!(status, Some(1 | 2)) {
            wrong.push(format!("$ dray {line}\n{said}expected:\n      {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

fn dray_in(folder: &Path, line: &str) -> (Option<i32>, String) {
    let output = common::command().args(line.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.stdout.is_empty(), "dray {line}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

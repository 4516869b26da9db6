//! Captures of a running switch, as tshark and tcpdump read them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use dray_capture::filter::{Filter, Program};
use dray_capture::pcapng::{self, Packet};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{self, Started, alone, eventually, listens, serves};

/// A switch with the ports `a`, a datagram socket, and `b`, which takes everything.
struct Node {
    folder: TempDir,
    switch: Started,
}

impl Node {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let mut command = common::command();
        command.args(["switch", "--control", &at("control"), &format!("a=unix:{}", at("a"))]);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let switch = Started(command.spawn().unwrap());
        assert!(eventually(|| serves(at("control")) && Path::new(&at("a")).exists()));
        Self { folder, switch }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts `dray capture` with words in which `@` stands for the folder, and waits until it runs
    /// or has ended.
    fn capture(&self, words: &[&str]) -> Started {
        let mut command = common::command();
        command.args(["capture", "--control", &self.at("control")]);
        command.args(words.iter().map(|word| word.replace('@', &self.at(""))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut capture = Started(command.spawn().unwrap());
        // It has the memory only after all threads of the switch write there.
        let runs = |capture: &Started| mapped(capture) > 0;
        let has_ended = |capture: &mut Started| capture.0.try_wait().unwrap().is_some();
        assert!(eventually(|| runs(&capture) || has_ended(&mut capture)));
        capture
    }

    /// Returns the number of captures.
    fn captures(&self) -> usize {
        mapped(&self.switch)
    }

    /// Sends frames into port `a`.
    fn send(&self, frames: &[Vec<u8>]) {
        let socket = UnixDatagram::unbound().unwrap();
        for frame in frames {
            socket.send_to(frame, self.at("a")).unwrap();
        }
    }

    /// Sends a frame into port `a` until `done` returns true.
    fn send_until(&self, frame: &[u8], done: impl Fn() -> bool) {
        assert!(eventually(|| {
            self.send(&[frame.to_vec()]);
            done()
        }));
    }

    /// Returns the fields of each frame of a file, as tshark reads it, which must not complain.
    fn fields(&self, file: &str, fields: &[&str]) -> Vec<String> {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r", &self.at(file), "-T", "fields", "-E", "separator=,"]);
        fields.iter().for_each(|field| _ = command.args(["-e", field]));
        let Output { status, stdout, stderr } = command.output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        let said: Vec<_> = said.lines().filter(|line| !line.contains("as user \"root\"")).collect();
        assert!(status.success() && said.is_empty(), "{said:?}");
        String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Returns how much memory for the frames of captures a process has mapped, in areas.
fn mapped(process: &Started) -> usize {
    // Of a process that has ended there may be none.
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.0.id())).unwrap_or_default();
    maps.lines().filter(|line| line.contains("/memfd:dray-capture")).count()
}

/// Waits for a process to end. Returns its exit status and its error output.
fn end(mut child: Started) -> (Option<i32>, String) {
    assert!(eventually(|| child.0.try_wait().unwrap().is_some()), "the capture ends");
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.0.wait().unwrap().code(), said)
}

fn len(path: &str) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// A broadcast of UDP to port `port`, with `len` bytes.
fn udp(port: u16, len: usize) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 0]].concat();
    let ip_len = (len - 14) as u16;
    frame.extend([0x45, 0, (ip_len >> 8) as u8, ip_len as u8, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39]);
    frame.extend(port.to_be_bytes());
    frame.extend([((ip_len - 20) >> 8) as u8, (ip_len - 20) as u8, 0, 0]);
    frame.resize(len, 7);
    frame
}

#[test]
fn capture_shows_frames_in_and_out_and_ends_well() {
    let _alone = alone();
    let node = Node::new(&["b=null:"]);
    let capture = node.capture(&["--all", "-w", "@/all.pcapng", "--snaplen", "100"]);
    assert!(eventually(|| len(&node.at("all.pcapng")) > 0));
    let before = len(&node.at("all.pcapng"));
    node.send(
        &(0..20).map(|number| udp(number, 60 + 10 * usize::from(number))).collect::<Vec<_>>(),
    );
    assert!(eventually(|| len(&node.at("all.pcapng")) > before));
    std::thread::sleep(Duration::from_millis(50));
    common::signal(&capture.0, Signal::INT);
    let (status, said) = end(capture);
    assert_eq!((status, said.as_str()), (Some(0), "captured 40 frames, missed none\n"));
    let fields = [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.len",
        "frame.cap_len",
        "udp.dstport",
    ];
    let seen: BTreeSet<_> = node.fields("all.pcapng", &fields).into_iter().collect();
    let expected = (0..20).flat_map(|number| {
        let len = 60 + 10 * number;
        let kept = len.min(100);
        [("a", 1), ("b", 2)].map(|(port, way)| format!("{port},0x{way:08x},{len},{kept},{number}"))
    });
    let text = |seen: &BTreeSet<String>| seen.iter().cloned().collect::<Vec<_>>().join("\n");
    let expected: BTreeSet<String> = expected.collect();
    // Versions of tshark print the direction in different ways.
    let seen: BTreeSet<_> = seen
        .iter()
        .map(|line| {
            let words: Vec<_> = line.split(',').collect();
            let way = u32::from_str_radix(words[1].trim_start_matches("0x"), 16).unwrap();
            format!("{},0x{way:08x},{}", words[0], words[2..].join(","))
        })
        .collect();
    assert_eq!(text(&seen), text(&expected));
    // In the order of time, which is that of the last seconds.
    let times = node.fields("all.pcapng", &["frame.time_epoch"]);
    let times: Vec<f64> = times.iter().map(|time| time.parse().unwrap()).collect();
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(times.is_sorted() && now - times[0] < 30.0 && times[39] <= now, "{times:?}, now {now}");
}

#[test]
fn capture_keeps_what_filter_and_direction_select() {
    let _alone = alone();
    let node = Node::new(&["b=null:"]);
    for (words, expected) in [
        (&["a", "--filter", "udp port 2152", "--count", "3"][..], vec!["a,2152"; 3]),
        (&["--all", "--direction", "out", "--count", "2"], vec!["b,1", "b,2"]),
        (&["a", "b", "--filter", "udp dst port 2", "--count", "2"], vec!["a,2", "b,2"]),
    ] {
        let capture = node.capture(&[words, &["-w", "@/some.pcapng"]].concat());
        node.send(&[udp(1, 60), udp(2, 60), udp(2152, 60), udp(2152, 60), udp(2152, 60)]);
        let (status, said) = end(capture);
        assert_eq!(status, Some(0), "{words:?}: {said}");
        let mut seen = node.fields("some.pcapng", &["frame.interface_name", "udp.dstport"]);
        seen.sort();
        assert_eq!(seen, expected, "{words:?}");
    }
}

#[test]
fn dropped_frame_has_its_reason_as_comment() {
    let _alone = alone();
    let node = Node::new(&[]);
    let capture = node.capture(&["--all", "--drops", "--count", "2", "-w", "@/drops.pcapng"]);
    node.send(&[udp(1, 60), vec![0; 9]]);
    assert_eq!(end(capture).0, Some(0));
    let seen = node.fields("drops.pcapng", &["frame.interface_name", "frame.comment", "frame.len"]);
    assert_eq!(seen, ["a,no_receiver,60", "a,too_short,9"]);
}

#[test]
fn capture_of_a_port_added_later_has_its_name() {
    let _alone = alone();
    let node = Node::new(&[]);
    let capture =
        node.capture(&["--all", "--direction", "out", "--count", "1", "-w", "@/later.pcapng"]);
    common::success(&["switch", "add-port", "later", "null:", "--control", &node.at("control")]);
    node.send(&[udp(1, 60)]);
    assert_eq!(end(capture).0, Some(0));
    assert_eq!(node.fields("later.pcapng", &["frame.interface_name"]), ["later"]);
}

/// A mirror gets one copy of each frame that its ports receive or send, and none that is flooded.
#[test]
fn mirror_gets_what_its_ports_receive_and_send() {
    let _alone = alone();
    for mode in ["learning", "patch"] {
        let node = Node::new(&["b=null:", "m=null:,mirror=a+b", "--mode", mode]);
        let capture =
            node.capture(&["m", "--filter", "not udp port 9", "-w", "@/m.pcapng", "--count", "4"]);
        node.send(&[udp(1, 60), udp(9, 60), udp(2, 60)]);
        assert_eq!(end(capture).0, Some(0));
        let mut seen = node.fields("m.pcapng", &["frame.interface_name", "udp.dstport"]);
        seen.sort();
        assert_eq!(seen, ["m,1", "m,1", "m,2", "m,2"], "{mode}");
    }
    let output = common::dray(&["switch", "a=null:", "m=null:,mirror=c"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("mirror: no such port: \"c\"; there are: a"), "{said}");
}

#[test]
fn rotated_files_are_complete_and_only_the_last_are_kept() {
    let _alone = alone();
    let node = Node::new(&["b=null:"]);
    let capture = node.capture(&["--all", "-w", "@/r.pcapng", "--rotate", "1k", "--keep", "2"]);
    let file = |number: u32| format!("r_{number:05}.pcapng");
    node.send_until(&udp(1, 500), || len(&node.at(&file(4))) > 0);
    common::signal(&capture.0, Signal::TERM);
    assert_eq!(end(capture).0, Some(0));
    let files: BTreeSet<_> = fs::read_dir(node.folder.path())
        .unwrap()
        .flatten()
        .collect::<Vec<_>>()
        .iter()
        .map(|file| file.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("r_"))
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        node.fields(&file, &["frame.interface_name"]);
    }
}

/// A capture has the frames of everybody.
#[test]
fn capture_is_readable_for_its_owner_and_follows_no_link_of_other_users() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let _alone = alone();
    require_root!();
    let node = Node::new(&["b=null:"]);
    fs::create_dir(node.at("public")).unwrap();
    fs::set_permissions(node.at("public"), PermissionsExt::from_mode(0o1777)).unwrap();
    let capture = node.capture(&["--all", "-w", "@/public/own.pcapng"]);
    common::signal(&capture.0, Signal::TERM);
    assert_eq!(end(capture).0, Some(0));
    let mode = fs::metadata(node.at("public/own.pcapng")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another user's link to a file of this one, and another user's file.
    let (link, planted) = (node.at("public/link.pcapng"), node.at("public/planted.pcapng"));
    fs::write(node.at("important"), "root's").unwrap();
    symlink("../important", &link).unwrap();
    fs::write(&planted, "").unwrap();
    for path in [&link, &planted] {
        lchown(path, Some(5555), None).unwrap();
    }
    for (name, part) in
        [("link", "a symbolic link of user 5555"), ("planted", "it belongs to another user")]
    {
        let capture = node.capture(&["--all", "-w", &format!("@/public/{name}.pcapng")]);
        let (code, said) = end(capture);
        assert!(code == Some(1) && said.contains(part), "{said}");
    }
    assert_eq!(fs::read_to_string(node.at("important")).unwrap(), "root's");
    assert_eq!(len(&planted), 0);
}

/// Errors are one line that names what was given; the switch goes on.
#[test]
fn capture_errors_are_one_line() {
    let _alone = alone();
    let node = Node::new(&["b=null:"]);
    let control = node.at("control");
    for (words, status, part) in [
        (&["c"][..], 1, "no such port: \"c\"; there are a, b"),
        (
            &["a", "--filter", "udp prot 1"],
            2,
            "--filter \"udp prot 1\": can't parse filter expression: syntax error",
        ),
        (&["a", "--filter", "ip protochain 1"], 2, "leads back, as protochain does"),
        (&[], 2, "give the names of ports, or --all"),
        (&["--all", "-w", "/nosuch/file"], 1, "/nosuch/file: No such file or directory"),
        (&["--all", "--rotate", "x"], 2, "give a number of bytes, such as 64k"),
    ] {
        let mut command = common::command();
        command.args(["capture", "--control", &control]).args(words);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    }
    let nobody = common::dray(&["capture", "a", "--control", "/nosuch.sock", "-w", "/dev/null"]);
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(said.contains("no program listens at /nosuch.sock; start `dray switch`"), "{said}");
    // A disk that is full: everything is written at the first frame.
    let full = node.capture(&["--all", "-w", "/dev/full"]);
    let (status, said) = end(full);
    assert_eq!(status, Some(1));
    assert!(
        said.contains("/dev/full: No space left on device") && said.lines().count() == 1,
        "{said}"
    );
    assert!(eventually(|| node.captures() == 0));
    node.send(&[udp(1, 60)]);
}

#[test]
fn killed_client_ends_its_capture() {
    let _alone = alone();
    let node = Node::new(&["b=null:"]);
    let captures: Vec<_> = (0..4).map(|_| node.capture(&["--all", "-w", "/dev/null"])).collect();
    assert!(eventually(|| node.captures() == 4));
    let (status, said) = end(node.capture(&["--all", "-w", "/dev/null"]));
    assert_eq!(status, Some(1));
    assert_eq!(said, "dray: 4 captures are running, the maximum; end one of them\n");
    // Frames go on into rings without a reader.
    captures.iter().for_each(|capture| common::signal(&capture.0, Signal::STOP));
    (0..1000).for_each(|_| node.send(&[udp(1, 1400)]));
    captures.iter().for_each(|capture| common::signal(&capture.0, Signal::KILL));
    assert!(eventually(|| node.captures() == 0));
}

/// The plugin, called as Wireshark does. Wireshark itself has only one folder for plugins that it
/// uses for root.
#[test]
fn plugin_answers_wireshark_and_captures() {
    let _alone = alone();
    let node = Node::new(&["b=null:"]);
    fs::rename(node.at("control"), node.at("switch.sock")).unwrap();
    let bin = Path::new(common::DRAY).parent().unwrap().display().to_string();
    let plugin = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/wireshark/dray"));
        command.args(words).env("DRAY_CONTROL_DIR", node.folder.path());
        command.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()));
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
        command
    };
    let port = ["--extcap-interface", "dray-switch:a"];
    for (words, part) in [
        (&["--extcap-interfaces", "--extcap-version=4.0"][..], "{value=dray-switch:a}"),
        (&[port[0], port[1], "--extcap-dlts"], "{number=1}{name=EN10MB}"),
        (&[port[0], port[1], "--extcap-config"], "{call=--direction}"),
        (&[port[0], port[1], "--extcap-capture-filter", "udp prot"], "syntax error"),
        (&[port[0], port[1], "--extcap-capture-filter", "udp port 5"], ""),
    ] {
        let said = plugin(words).output().unwrap().stdout;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(part) && said.is_empty() == part.is_empty(), "{words:?}: {said}");
    }
    let file = node.at("fifo");
    let words = ["--capture", "--fifo", &file, "--extcap-capture-filter", "udp port 5"];
    let capture = plugin(&[&port[..], &words[..], &["--count", "2"]].concat());
    let capture = Started({ capture }.spawn().unwrap());
    assert!(eventually(|| mapped(&capture) == 1));
    node.send(&[udp(5, 60), udp(6, 60), udp(5, 60)]);
    assert_eq!(end(capture), (Some(0), String::new()));
    assert_eq!(node.fields("fifo", &["udp.dstport"]), ["5", "5"]);
}

/// Expressions of tcpdump's language.
const EXPRESSIONS: &str = "\
ip;ip6;arp;rarp;tcp;udp;icmp;icmp6;sctp;not ip;ip or arp;not (ip or ip6)
ether host 02:00:00:00:00:01;ether src 02:00:00:00:00:02;ether dst ff:ff:ff:ff:ff:ff;ether broadcast
ether multicast;ether proto 0x88b5;ether proto 0x0800;ip broadcast or ip multicast;ip multicast;ip6 multicast
host 10.0.0.1;src host 10.0.0.1;dst host 10.0.0.2;host 10.0.0.1 and host 10.0.0.2;net 10.0.0.0/8
src net 10.0.0.0/24;dst net 192.168.0.0/16;net 10.0.0.0/30;not net 10.0.0.0/8;host fd00::1
ip6 host fd00::1;src host fd00::2;net fd00::/16;dst net fd00::/64 or arp
port 53;src port 53;dst port 53;udp port 2152;tcp port 80;tcp src port 443;portrange 50-100
tcp dst portrange 80-443;udp src portrange 1-1000;sctp port 38412;not port 53;port 53 or port 80
tcp and port 80;udp and not port 2152;ip proto 17;ip proto 6 or ip proto 132;ip6 proto 17
proto 1;tcp[tcpflags] & tcp-syn != 0;tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn
tcp[13] = 18;tcp[0:2] > 1023;udp[4:2] > 30;icmp[icmptype] == icmp-echo;icmp[0] = 0;icmp6[0] = 135
ip[8] < 10;ip[8] > 63;ip[0] & 0xf != 5;ip[6:2] & 0x1fff != 0;ip[2:2] > 100;ip[1] & 0xfc >> 2 == 46
ip[12:4] = 0x0a000001;ip[16:4] - ip[12:4] = 1;ip[8] * 2 > 100;ip[2:2] / 10 = 4;ip[2:2] % 7 = 3
ip[1] ^ 0xb8 = 0;-ip[9] = -17;ip6[6] = 17;ip6[4:2] < 20;ether[0] & 1 = 0;ether[12:2] = 0x8100
ether[20:4] > 0x40000000;ether[60] = 7;len > 100;len <= 60;less 64;greater 200;len - 14 = ip[2:2]
vlan;vlan 10;vlan 10 and ip;vlan and udp port 53;vlan 10 and vlan 20;not vlan;vlan 20 and not udp
mpls;mpls 100;pppoes;pppoes and ip;arp host 10.0.0.1;arp[6:2] = 1;ip host 10.0.0.1 and tcp
udp and ip[6:2] & 0x3fff = 0;(tcp or udp) and (port 80 or port 53) and not host 10.0.0.3
atalk;aarp;stp;ipx;llc;ether[14:2] = 0x4242;geneve;udp[8:4] = 0x30ff0010;1 = 1";

/// Frames of many kinds, the same ones each time.
fn frames() -> Vec<Vec<u8>> {
    let mut state = 1u32;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut frames = Vec::new();
    for _ in 0..400 {
        let one =
            |random: &mut dyn FnMut(u32) -> u32, of: &[u16]| of[random(of.len() as u32) as usize];
        let mut frame = match random(4) {
            0 => vec![0xff; 6],
            1 => vec![1, 0, 0x5e, 0, 0, 1],
            _ => vec![2, 0, 0, 0, 0, random(3) as u8],
        };
        frame.extend([2, 0, 0, 0, 0, random(3) as u8]);
        for _ in 0..random(3).saturating_sub(random(2)) {
            frame.extend([if random(4) == 0 { 0x88 } else { 0x81 }, 0, 0, 10 * random(3) as u8]);
            let at = frame.len() - 3;
            frame[at] = if frame[at - 1] == 0x88 { 0xa8 } else { 0 };
        }
        let kind = one(
            &mut random,
            &[0x800, 0x800, 0x800, 0x86dd, 0x86dd, 0x806, 0x88b5, 0x8847, 0x8864, 38, 0x809b],
        );
        frame.extend(kind.to_be_bytes());
        match kind {
            0x8847 => frame.extend([0, 6, 0x41, 64]),
            0x8864 => frame.extend([0x11, 0, 0, 1, 0, 40, 0, 0x21]),
            38 => frame.extend([0x42, 0x42, 3]),
            0x806 => frame.extend([0, 1, 8, 0, 6, 4, 0, random(3) as u8]),
            _ => {}
        }
        let protocol = one(&mut random, &[17, 17, 6, 6, 1, 58, 132, 44, 0]) as u8;
        let ttl = random(70) as u8;
        if kind == 0x86dd {
            frame.extend([0x60, 0, 0, 0, 0, random(60) as u8, protocol, ttl]);
            for _ in 0..2 {
                frame.extend([
                    if random(5) == 0 { 0xff } else { 0xfd },
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    random(3) as u8,
                ]);
            }
            if matches!(protocol, 0 | 44) {
                frame.extend([17, 0, 0, random(2) as u8, 0, 0, 0, 1]);
            }
        } else if matches!(kind, 0x800 | 0x8847 | 0x8864) {
            let options = if random(5) == 0 { 1 } else { 0 };
            let fragment = if random(6) == 0 { random(3) as u8 } else { 0 };
            let tos = if random(4) == 0 { 0xb8 } else { 0 };
            frame.extend([
                0x45 + options,
                tos,
                0,
                28 + random(120) as u8,
                0,
                1,
                0,
                fragment,
                ttl,
                protocol,
                0,
                0,
            ]);
            for _ in 0..2 {
                frame.extend([[10, 0, 0], [192, 168, 1], [224, 0, 0]][random(3) as usize]);
                frame.push(random(4) as u8);
            }
            frame.extend(vec![1; 4 * usize::from(options)]);
        }
        for _ in 0..2 {
            frame.extend(
                one(&mut random, &[53, 80, 443, 2152, 38412, 4789, 6081, 1234]).to_be_bytes(),
            );
        }
        let icmp = [0, 8, 135][random(3) as usize];
        if matches!(protocol, 1 | 58) {
            let at = frame.len() - 4;
            frame[at] = icmp;
        }
        frame.extend([
            0,
            random(60) as u8,
            0,
            0,
            0x30,
            0xff,
            0,
            16,
            0x50,
            [2, 16, 18, 24][random(4) as usize],
        ]);
        frame.extend((0..random(150)).map(|_| 7u8).collect::<Vec<_>>());
        if random(10) == 0 {
            frame.truncate(random(60) as usize);
        }
        frames.push(frame);
    }
    frames
}

#[test]
fn filters_agree_with_tcpdump() {
    let frames = frames();
    let mut file = Vec::new();
    pcapng::section(&mut file, "test");
    pcapng::interface(&mut file, "a", 0, "");
    for (number, bytes) in frames.iter().enumerate() {
        let time = Duration::from_micros(number as u64);
        let len = bytes.len() as u32;
        pcapng::packet(
            &mut file,
            &Packet { interface: 0, time, len, bytes, is_inbound: true, comment: "" },
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames.pcapng");
    fs::write(&path, file).unwrap();
    let tcpdump = |words: &[&str]| {
        let output = Command::new("tcpdump").args(words).output().expect("tcpdump is installed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(output.stdout).ok_or(said)
    };
    let (mut number, mut kept) = (0, 0);
    for expression in EXPRESSIONS.split([';', '\n']) {
        let program = match tcpdump(&["-ddd", "-y", "EN10MB", "--", expression]) {
            Ok(program) => String::from_utf8(program).unwrap(),
            Err(said) => panic!("{expression}: {said}"),
        };
        let filter = Filter::new(&program.parse::<Program>().unwrap().0).unwrap();
        let file = tcpdump(&["-r", path.to_str().unwrap(), "-w", "-", "--", expression]).unwrap();
        // A header of 24 bytes, then for each frame 16 bytes with its time, and the frame.
        let mut rest = &file[24..];
        let mut expected = BTreeSet::new();
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(*rest[at..].first_chunk().unwrap()) as usize;
            expected.insert(word(4));
            rest = &rest[16 + word(8)..];
        }
        let keeps = |frame: &Vec<u8>| filter.keeps(frame, frame.len());
        let seen: BTreeSet<_> = (0..frames.len()).filter(|at| keeps(&frames[*at])).collect();
        assert_eq!(seen, expected, "{expression}");
        number += 1;
        kept += usize::from(!seen.is_empty() && seen.len() < frames.len());
    }
    assert!(
        number >= 100 && kept * 10 >= number * 8,
        "{number} expressions, of which {kept} keep some frames"
    );
}

/// The frames of a role, by its own control socket.
#[test]
fn frames_of_a_role_are_captured_at_both_ports() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let from = format!("unix:{}", at("a"));
    let words =
        ["forward", "--from", &from, "--to", "null:", "--control", &at("control"), "-i", "0"];
    let mut role = common::command();
    role.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _role = Started(role.spawn().unwrap());
    assert!(eventually(|| listens(at("control")) && Path::new(&at("a")).exists()));
    let file = at("role.pcapng");
    let mut capture = common::command();
    capture.args(["capture", "--control", &at("control"), "--all", "--count", "20", "-w", &file]);
    capture.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut capture = Started(capture.spawn().unwrap());
    let socket = UnixDatagram::unbound().unwrap();
    assert!(eventually(|| {
        socket.send_to(&udp(7, 100), at("a")).unwrap();
        capture.0.try_wait().unwrap().is_some()
    }));
    let (status, said) = end(capture);
    assert_eq!((status, said.as_str()), (Some(0), "captured 20 frames, missed none\n"));
    let mut command = Command::new("tshark");
    command.args([
        "-n",
        "-r",
        &file,
        "-T",
        "fields",
        "-e",
        "frame.interface_name",
        "-e",
        "frame.len",
    ]);
    let output = command.output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let ports: BTreeSet<_> = lines.lines().collect();
    assert_eq!(ports, BTreeSet::from([&*format!("{from}\t100"), "null:\t100"]));
}

//! Interoperation with independent implementations: scapy builds what we receive, and scapy and
//! tshark read what we send.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use dray_upf::Operation;
use serde_json::{Value, json};

use crate::ends::{self, Ends, from_dn, from_gnb, plain_session, routed, to_dn, udp};

/// Another implementation: a process that replies to requests.
struct Other {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn start(mut command: Command) -> Self {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let requests = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, requests, answers }
    }

    /// Starts Debian's Python, which has scapy, whatever else is in `PATH`.
    fn scapy() -> Option<Self> {
        let mut python = Command::new("/usr/bin/python3");
        let known = python.args(["-c", "import scapy.contrib.gtp"]).output();
        if !known.is_ok_and(|output| output.status.success()) {
            return skip("python3-scapy is not installed");
        }
        let mut python = Command::new("/usr/bin/python3");
        python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gtpu_by_scapy.py"));
        Some(Self::start(python))
    }

    /// Starts our own program around the Go library, which is downloaded.
    fn go_gtp() -> Option<Self> {
        if !has_go() {
            return skip("Go 1.23 or later is not installed");
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("go-gtp");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&program).arg(".");
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/go-gtp"));
        assert!(build.status().unwrap().success(), "{build:?}");
        Some(Self::start(Command::new(program)))
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{request}: {error}: {line}"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn has_go() -> bool {
    let output = Command::new("go").args(["env", "GOVERSION"]).output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let minor = version.ok().and_then(|version| {
        version.trim().strip_prefix("go1.")?.split('.').next()?.parse::<u32>().ok()
    });
    minor.is_some_and(|minor| minor >= 23)
}

/// Skips the test. Where nothing may be skipped (`CI=true`), it fails instead.
fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "tests may not be skipped in CI: {why}");
    eprintln!("SKIPPED: {why}");
    None
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap_or_else(|| panic!("{hex}"));
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn scapy_messages_are_accepted() {
    let Some(mut scapy) = Other::scapy() else { return };
    let mut ends = Ends::new(&plain_session(1));
    for flags in 0..8 {
        for (outer, inner, len) in [(4, 4, 0), (4, 6, 100), (6, 4, 1), (6, 6, 1300)] {
            let request = json!({
                "outer": outer, "inner": inner, "len": len,
                "S": flags & 2 != 0, "PN": flags & 1 != 0, "E": flags & 4 != 0,
            });
            let built = scapy.ask(&request);
            let (frame, inner) = (bytes(&built["frame"]), bytes(&built["inner"]));
            assert_eq!(ends.up([frame]), [to_dn(&inner)], "{request}");
        }
    }
    ends.assert_drops(&ends.upf.uplink(), &[]);
}

/// Returns frames of every kind that we send into N3.
fn made() -> Vec<Vec<u8>> {
    let mut made = Vec::new();
    let v6 = plain_session(1).replace("gnb = \"10.0.3.2\"", "gnb = \"fd00:3::2\"");
    for session in [plain_session(1), v6] {
        let mut ends = Ends::new(&session);
        for len in [0, 1, 1300] {
            let payload = vec![7; len];
            made.extend(ends.down([
                from_dn(&udp("203.0.113.9", "10.45.0.1", (80, 5000), &payload)),
                from_dn(&udp("2001:db8:ff::1", "2001:db8:1::5", (80, 5000), &payload)),
            ]));
        }
        ends.up([from_gnb(77, None, &udp("10.45.0.1", "203.0.113.9", (1, 2), b""))]);
        made.extend(ends.n3.received());
        ends.up([ends::message_from_gnb(&dray_wire::gtpu::echo_request(9))]);
        made.extend(ends.n3.received());
        let mut unknown = from_gnb(1, Some(9), &udp("10.45.0.1", "203.0.113.9", (1, 2), b""));
        // The type of the extension header.
        unknown[42 + 11] = 0xc1;
        ends.up([unknown]);
        made.extend(ends.n3.received());
        let session = ends::session_of(&session.replace("teid = 1001", "teid = 77"));
        ends.upf.apply(&[Operation::Modify { session, end_marker: true }]).unwrap();
        ends.run();
        made.extend(ends.n3.received());
    }
    made
}

#[test]
fn scapy_reads_our_messages() {
    let Some(mut scapy) = Other::scapy() else { return };
    let frames = made();
    assert_eq!(frames.len(), 20);
    let mut kinds = std::collections::BTreeMap::<u64, usize>::new();
    for frame in &frames {
        let read = scapy.ask(&json!({ "frame": hex(frame) }));
        assert_eq!(read["same"], true, "{read}");
        let kind = read["type"].as_u64().unwrap();
        *kinds.entry(kind).or_default() += 1;
        match kind {
            255 => {
                assert_eq!(
                    (&read["teid"], &read["pdu"], &read["qfi"]),
                    (&json!(1001), &json!(0), &json!(9))
                );
                let (src, dst) = match bytes(&read["inner"])[0] >> 4 {
                    4 => ("203.0.113.9", "10.45.0.1"),
                    _ => ("2001:db8:ff::1", "2001:db8:1::5"),
                };
                let inner = bytes(&read["inner"]);
                let headers = if src.contains(':') { 48 } else { 28 };
                let payload = &inner[headers..];
                assert_eq!(inner, routed(&udp(src, dst, (80, 5000), payload)));
            }
            26 => assert_eq!(read["IE_TEIDI"], 77, "{read}"),
            2 => assert!(read["layers"].to_string().contains("EchoResponse"), "{read}"),
            31 => assert!(read["layers"].to_string().contains("SupportedExtension"), "{read}"),
            254 => {
                assert_eq!((&read["teid"], &read["length"]), (&json!(1001), &json!(0)), "{read}");
            }
            other => panic!("unexpected type {other}: {read}"),
        }
    }
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        [(2, 2), (26, 2), (31, 2), (254, 2), (255, 12)]
    );
}

/// Extension headers that are parsed or may be ignored (types from 0x80 on must be understood).
const TAKEN: [(u8, &str); 8] = [
    (0x85, "1009"),
    (0x40, "0868"),
    (0x01, "0000"),
    (0x02, "0000"),
    (0x03, "0102"),
    (0x20, "1100"),
    (0x82, "000102030000"),
    (0xc0, "0102"),
];
/// Extension headers that must be understood, but are not supported.
const NOT_TAKEN: [(u8, &str); 5] =
    [(0x81, "0102"), (0x83, "01020304050607"), (0x84, "01020304"), (0xc1, "0102"), (0xc2, "0102")];

fn extensions(list: &[(u8, &str)]) -> Value {
    list.iter().map(|(kind, content)| json!({ "type": kind, "content": content })).collect()
}

#[test]
fn go_gtp_messages_are_accepted_with_tools() {
    let Some(mut go_gtp) = Other::go_gtp() else { return };
    let mut built = |request: Value| {
        let answer = go_gtp.ask(&request);
        assert_eq!(answer.get("error"), None, "{request}");
        ends::message_from_gnb(&bytes(&answer["message"]))
    };
    let mut ends = Ends::new(&plain_session(1));
    let inner = udp("10.45.0.1", "203.0.113.9", (5000, 80), b"payload");
    let tpdu = |sequence: bool, npdu: bool, list: &[(u8, &str)]| {
        json!({
            "build": "tpdu", "teid": 1, "payload": hex(&inner), "extensions": extensions(list),
            "sequence": sequence.then_some(7), "npdu": npdu.then_some(8),
        })
    };
    let long = "00".repeat(255 * 4 - 2);
    let mut chains: Vec<Vec<(u8, &str)>> = TAKEN.iter().map(|&one| vec![one]).collect();
    chains.extend([vec![], TAKEN.to_vec(), TAKEN.iter().rev().copied().collect()]);
    chains.push(vec![(0x20, &long[..100]), TAKEN[0]]);
    chains.push(vec![(0x20, &long), TAKEN[0]]);
    for chain in &chains {
        for (sequence, npdu) in [(false, false), (true, false), (false, true), (true, true)] {
            let frame = built(tpdu(sequence, npdu, chain));
            assert_eq!(ends.up([frame]), [to_dn(&inner)], "{sequence} {npdu} {chain:x?}");
        }
    }
    ends.assert_drops(&ends.upf.uplink(), &[]);

    let frames = [
        built(json!({ "build": "end", "teid": 1 })),
        built(json!({ "build": "error", "teid": 1001, "sequence": 5 })),
    ];
    assert!(ends.up(frames).is_empty());
    let counters = ends.upf.uplink();
    assert_eq!((counters.end_markers, counters.error_indications), (1, 1));
    ends.assert_drops(&counters, &[]);
}

#[test]
fn go_gtp_reads_our_replies_with_tools() {
    let Some(mut go_gtp) = Other::go_gtp() else { return };
    let mut ends = Ends::new(&plain_session(1));
    // Sends a request that go-gtp builds, and returns how go-gtp reads our reply.
    let mut answered = |request: Value| {
        let built = go_gtp.ask(&request);
        assert!(ends.up([ends::message_from_gnb(&bytes(&built["message"]))]).is_empty());
        let [frame] = &ends.n3.received()[..] else { panic!("{request}: not exactly one reply") };
        let answer = go_gtp.ask(&json!({ "read": hex(&frame[42..]) }));
        assert_eq!(answer.get("error"), None, "{answer}");
        answer
    };
    let inner = hex(&udp("10.45.0.1", "203.0.113.9", (5000, 80), b"payload"));
    let echo = answered(json!({ "build": "echo", "sequence": 4711, "payload": "0102" }));
    assert_eq!((&echo["type"], &echo["sequence"]), (&json!(2), &json!(4711)), "{echo}");
    let lost = answered(json!({ "build": "tpdu", "teid": 77, "payload": inner }));
    assert_eq!((&lost["type"], &lost["lost_teid"]), (&json!(26), &json!(77)), "{lost}");
    assert_eq!(lost["address"], "10.0.3.1", "{lost}");
    for one in NOT_TAKEN {
        let list = extensions(&[TAKEN[0], one]);
        let request = json!({ "build": "tpdu", "teid": 1, "payload": inner, "extensions": list });
        let answer = answered(request);
        assert_eq!(answer["type"], 31, "{answer}");
        let supported = answer["supported"].as_str().unwrap();
        assert_eq!(supported, "QIKFwA==", "0x40, 0x82, 0x85 and 0xc0 in base 64");
    }
}

#[test]
fn go_gtp_reads_our_messages_with_tools() {
    let Some(mut go_gtp) = Other::go_gtp() else { return };
    let mut tpdus = 0;
    for frame in made() {
        let headers = if frame[14] >> 4 == 4 { 42 } else { 62 };
        let read = go_gtp.ask(&json!({ "read": hex(&frame[headers..]) }));
        assert_eq!(read.get("error"), None, "{read}");
        // go-gtp reads error indications (26) with an extension header, but cannot write them. It
        // writes lists of supported extension headers (31), but not with the one-byte length of TS
        // 29.281, 8.5.
        let is_written = read["type"] != 26 && read["type"] != 31;
        assert!(read["same"] == true || !is_written, "{read}");
        if read["type"] == 31 {
            assert_eq!(read["supported"], "QIKFwA==", "{read}");
        }
        if read["type"] == 255 {
            tpdus += 1;
            assert_eq!(read["teid"], 1001, "{read}");
            assert_eq!(read["extensions"], extensions(&[(0x85, "0009")]), "{read}");
        }
    }
    assert_eq!(tpdus, 12);
}

/// tshark reports no warning in any layer.
#[test]
fn tshark_reads_our_messages_without_warning() {
    let known = Command::new("tshark").arg("--version").output();
    if !known.is_ok_and(|output| output.status.success()) {
        return skip("tshark is not installed").unwrap_or(());
    }
    // A capture file: its header, and each frame after a header of its own (pcap, Ethernet).
    let frames = made();
    let mut file: Vec<u8> = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    for frame in &frames {
        let len = frame.len() as u32;
        file.extend([0, 0, len, len].into_iter().flat_map(u32::to_ne_bytes));
        file.extend(frame);
    }
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", "-", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    tshark.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=a"]);
    for field in ["frame.protocols", "gtp.message", "gtp.teid", "_ws.expert.message"] {
        tshark.args(["-e", field]);
    }
    let mut tshark = tshark.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    tshark.stdin.take().unwrap().write_all(&file).unwrap();
    let output = tshark.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), frames.len(), "{text}");
    for line in text.lines() {
        let fields: Vec<_> = line.split('|').collect();
        assert!(fields[0].contains("gtp"), "{line}");
        assert_eq!(fields[3], "", "{line}");
    }
}

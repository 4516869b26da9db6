//! Against implementations that we did not write: scapy builds what we take, and scapy and tshark read
//! what we make.

mod ends;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ends::{Ends, from_dn, from_gnb, plain_session, routed, to_dn, udp};
use serde_json::{Value, json};

/// scapy as a process that answers questions. Debian's Python has it, whatever else is on the path.
struct Scapy {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Scapy {
    fn start() -> Option<Self> {
        let known =
            Command::new("/usr/bin/python3").args(["-c", "import scapy.contrib.gtp"]).output();
        if !known.is_ok_and(|output| output.status.success()) {
            return skip("python3-scapy is not installed");
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gtpu_by_scapy.py");
        let mut process = Command::new("/usr/bin/python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Some(Self { process, requests, answers })
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{request}: {error}: {line}"))
    }
}

impl Drop for Scapy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where nothing may be skipped (`CI=true`) it fails instead.
fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI skips nothing, but: {why}");
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
fn what_scapy_builds_we_take() {
    let Some(mut scapy) = Scapy::start() else { return };
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

/// Frames of every kind that we send into N3, with what they carry.
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
    }
    made
}

#[test]
fn what_we_build_scapy_reads() {
    let Some(mut scapy) = Scapy::start() else { return };
    let frames = made();
    assert_eq!(frames.len(), 16);
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
            other => panic!("type {other}: {read}"),
        }
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [(2, 2), (26, 2), (255, 12)]);
}

/// tshark finds nothing to complain about in any layer.
#[test]
fn what_we_build_tshark_reads_without_a_warning() {
    let known = Command::new("tshark").arg("--version").output();
    if !known.is_ok_and(|output| output.status.success()) {
        return skip("tshark is not installed").unwrap_or(());
    }
    // A capture file: its header, and each frame behind a header of its own (pcap, Ethernet).
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

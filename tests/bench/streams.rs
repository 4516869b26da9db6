//! Byte streams and pairs on the real kernel: every byte arrives, and figures have the right units.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, alone, assert_schema, eventually, lacks_ovs, may_lack, success};
use dray_results::{Check, Results, StreamRow};
use dray_traffic::{Report, StreamReceiveReport, StreamSendReport};
use rustix::process::Signal;

fn bench(arguments: &[&str]) -> (serde_json::Value, Results) {
    let text = success(&[&["bench", "--json", "-", "--quick"], arguments].concat());
    (serde_json::from_str(&text).unwrap(), serde_json::from_str(&text).unwrap())
}

/// Checks what must hold for every row, whatever the machine did meanwhile.
fn check_bytes(row: &StreamRow) {
    let name = format!("{} x {}", row.technique, row.pairs);
    let measured = row.measured().unwrap_or_else(|| panic!("{name}: {:?}", row.outcome));
    let counted = if row.endpoint == "tcp-sockmap" { None } else { Some(true) };
    assert_eq!(measured.counters_agree, counted, "{name}: {measured:?}");
    assert_eq!(measured.sent_bytes, measured.received_bytes, "{name}");
    assert_eq!(measured.corrupt_reads, 0, "{name}");
    let by_tcp = if row.endpoint == "tcp-sockmap" { 0 } else { measured.received_bytes };
    assert_eq!(measured.by_tcp_bytes, by_tcp, "{name}");
    // On a busy machine the roles may not run in the half second that is measured.
    assert!(measured.received_bytes > 0, "{name}: {measured:?}");
    assert!(measured.slowest_pair_bps <= measured.fastest_pair_bps, "{name}");
    let has_switch = measured.setting.role_cores.contains_key("switch");
    assert_eq!(
        measured.setting.role_cores.len(),
        2 * row.pairs + usize::from(has_switch),
        "{name}"
    );
    let roles: Vec<_> = measured.cpu.roles.keys().map(String::as_str).collect();
    let switch = if has_switch { &["switch", "switch control"][..] } else { &[] };
    let all = [&["kernel", "receiver", "sender"], switch].concat();
    assert_eq!(roles, all, "{name}: one sum for all pairs");
}

#[test]
fn every_link_that_carries_ip_carries_tcp_with_time() {
    let _alone = alone();
    require_root!();
    let words = ["--technique", "tcp,tcp-sockmap", "--duration", "0.2", "--flows", "3"];
    let (json, results) = bench(&words);
    assert_schema(&json);
    assert!(results.results.is_empty(), "streams are not among frames");
    let plain = results.streams.iter().filter(|row| row.endpoint == "tcp").count();
    assert!(plain >= 4 && results.streams.len() == 2 * plain, "veth, bridge, two of XDP, others");
    for row in &results.streams {
        assert_eq!((row.streams, row.pairs, row.mtu), (3, 1, 1500));
        let may_be_skipped = may_lack(&row.link) || lacks_ovs(&row.link);
        if may_be_skipped && row.measured().is_none() {
            continue;
        }
        check_bytes(row);
        let measured = row.measured().unwrap();
        assert_eq!(measured.check, Check::Sampled);
        assert!((1300..1460).contains(&measured.segment_max), "{measured:?}");
        assert_eq!(measured.samples_bps.len(), 2);
    }
}

/// Plain sockets with our switch between them: every byte arrives, past it and through it.
#[test]
fn streams_of_pods_bypass_our_switch() {
    let _alone = alone();
    require_root!();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let words = "bench streams --quick --technique switch-pod/tcp,switch-tap/learning/tcp,switch-tap/patch/tcp \
         --duration 0.5 --check whole";
    let table = success(&[&words.split(' ').collect::<Vec<_>>()[..], &["--json", path]].concat());
    let json = std::fs::read_to_string(path).unwrap();
    assert_schema(&serde_json::from_str(&json).unwrap());
    let results: Results = serde_json::from_str(&json).unwrap();
    let names: Vec<_> = results.streams.iter().map(|row| row.technique.as_str()).collect();
    assert_eq!(names, ["switch-pod/tcp", "switch-tap/learning/tcp", "switch-tap/patch/tcp"]);
    results.streams.iter().for_each(check_bytes);
    let of = |row: &StreamRow| row.measured()?.setting.switch.as_ref()?.bypassed_ratio;
    let ratios: Vec<_> = results.streams.iter().map(of).collect();
    assert!(ratios[0].unwrap() > 0.99 && ratios[1..] == [None, None], "{ratios:?}");
    let note =
        format!("switch-pod/tcp: {:.1} % of the frames bypassed", 100.0 * ratios[0].unwrap());
    assert!(table.contains(&note), "{table}");
}

/// iperf3's own figures, of streams and of datagrams, and of several pairs at the same time.
#[test]
fn iperf3_reports_on_streams_and_datagrams_with_tools() {
    let _alone = alone();
    require_root!();
    let words = ["--technique", "veth/iperf3,bridge/iperf3-udp", "--trials", "1"];
    let (json, results) = bench(&["streams", "--flows", "2", "--technique", "veth/iperf3"]);
    assert_schema(&json);
    assert!(results.results.is_empty() && results.streams.len() == 1, "flows are of streams");
    let (json, results) = bench(&[&["streams", "--size", "512"][..], &words].concat());
    assert_schema(&json);
    let [datagrams] = &results.results[..] else { panic!("{results:?}") };
    let measured = datagrams.measured().unwrap_or_else(|| panic!("{datagrams:?}"));
    assert!(measured.received > 0 && measured.received <= measured.sent, "{measured:?}");
    assert_eq!((datagrams.frame_size, measured.counters_agree), (512, None), "{measured:?}");
    let [streams] = &results.streams[..] else { panic!("{results:?}") };
    let measured = streams.measured().unwrap_or_else(|| panic!("{streams:?}"));
    assert!(measured.received_bytes > 0 && measured.received_bytes <= measured.sent_bytes);
    assert_eq!((measured.segment_max, measured.counters_agree), (1448, None), "{measured:?}");
    assert!(measured.goodput_bps > 1e6 && !measured.congestion.is_empty(), "{measured:?}");
    let programs = measured.setting.programs.as_ref().expect("the version");
    assert!(programs.versions[0].starts_with("iperf 3."), "{programs:?}");

    let words = ["--technique", "hosts/bridge/iperf3", "--pairs", "3", "--mtu", "9000"];
    let words = [&["claassen2016-switched-tcp"][..], &words, &["--trials", "1"]].concat();
    let (_, results) = bench(&words);
    let [streams] = &results.streams[..] else { panic!("{results:?}") };
    let measured = streams.measured().unwrap_or_else(|| panic!("{streams:?}"));
    assert!((streams.pairs, measured.segment_max) == (3, 8948), "{streams:?}");
    assert!(measured.slowest_pair_bps > 0.0, "{measured:?}");
}

/// A cable between two hosts carries no more than its rate, with and without a tunnel.
#[test]
fn streams_between_hosts_get_the_rate_of_the_cable() {
    let _alone = alone();
    require_root!();
    const BPS: f64 = 200e6;
    let words = ["--technique", "hosts/bridge/tcp,vxlan/tcp", "--trials", "1"];
    let (json, results) = bench(&[&["tunnels", "--cable", "200M"][..], &words].concat());
    assert_schema(&json);
    assert_eq!(results.settings.cable_bps, Some(BPS as u64));
    assert_eq!(results.streams.len(), 2);
    for row in &results.streams {
        let measured = row.measured().unwrap_or_else(|| panic!("{row:?}"));
        // Headers take 4.4 % of the rate, and a busy machine some of the time.
        let share = measured.goodput_bps / BPS;
        assert!((0.5..0.97).contains(&share), "{}: {share} of the rate", row.technique);
    }
}

#[test]
fn streams_repeat_and_skip_missing_smc() {
    let _alone = alone();
    require_root!();
    let words = [
        "streams",
        "--technique",
        "veth/tcp,veth/tcp-zerocopy,veth/tcp-sockmap,veth/smc",
        "--duration",
        "0.5",
        "--mtu",
        "9000",
        "--check",
        "whole",
    ];
    let (json, results) = bench(&words);
    assert_schema(&json);
    let names: Vec<_> = results.streams.iter().map(|row| row.endpoint.as_str()).collect();
    assert_eq!(names, ["tcp", "tcp-zerocopy", "tcp-sockmap", "smc"]);
    let has_smc = std::fs::read_to_string("/proc/net/protocols").unwrap().contains("SMC");
    for row in &results.streams {
        if row.endpoint == "smc" && !has_smc {
            let why = format!("{:?}", row.outcome);
            assert!(why.contains("no SMC sockets"), "{why}");
            continue;
        }
        check_bytes(row);
        let measured = row.measured().unwrap();
        let left_out = measured.setting.lines.map_or(0, |lines| lines.left_out)
            + measured.noise.map_or(0, |noise| noise.left_out);
        assert!(measured.trials + left_out >= 2 && measured.check == Check::Whole, "{measured:?}");
        assert_eq!(measured.trials_bps.len(), measured.trials);
        assert!(measured.interval95_bps.is_some() && measured.segment_max > 8000, "{measured:?}");
        let is_zerocopy = row.endpoint == "tcp-zerocopy";
        assert_eq!(measured.zerocopy_copied_ratio.is_some(), is_zerocopy);
    }
    // On one CPU no trial is left out because CPUs moved.
    let one_cpu = "bench streams --quick --duration 0.5 --technique veth/tcp --cpus 0";
    let text = success(&one_cpu.split(' ').collect::<Vec<_>>());
    assert!(text.contains("goodput") && text.contains("congestion control"), "{text}");
    assert!(!text.contains("kpps"), "{text}");
    assert!(text.contains("trials of each: 2"), "{text}");
}

#[test]
fn tcp_pairs_share_a_bridge_without_loss() {
    let _alone = alone();
    require_root!();
    let words = ["--technique", "bridge/tcp", "--pairs", "1,16,128", "--duration", "0.5"];
    let (json, results) = bench(&words);
    assert_schema(&json);
    let pairs: Vec<_> = results.streams.iter().map(|row| row.pairs).collect();
    assert_eq!(pairs, [1, 16, 128]);
    results.streams.iter().for_each(check_bytes);
}

#[test]
fn udp_pair_counters_balance() {
    let _alone = alone();
    require_root!();
    let words = [
        "claassen2016-local-udp",
        "--technique",
        "bridge/udp",
        "--pairs",
        "1,5",
        "--duration",
        "0.5",
        "--trials",
        "1",
    ];
    let (json, results) = bench(&words);
    assert_schema(&json);
    let rows: Vec<_> =
        results.results.iter().map(|row| (row.pairs, row.mtu, row.frame_size)).collect();
    assert_eq!(rows, [(1, 1500, 1514), (1, 9000, 9014), (5, 1500, 1514), (5, 9000, 9014)]);
    for row in &results.results {
        let measured = row.measured().unwrap();
        let name = format!("{} x {} {}", row.technique, row.pairs, row.mtu);
        assert_eq!(row.topology, "pairs");
        assert!(!measured.counters_disagree() && measured.received > 0, "{name}: {measured:?}");
        assert_eq!(measured.sent, common::accounted(measured), "{name}: {measured:?}");
        assert_eq!(measured.setting.role_cores.len(), 2 * row.pairs, "{name}");
    }
    let words = "claassen2016-local-udp --quick --technique bridge/udp --pairs 2 --duration 0.5 --mtu 1500 \
                 --trials 1";
    let text = success(&["bench"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    assert!(text.contains("pairs  bridge/udp 1500") && text.contains("Gb/s"), "{text}");
}

/// Runs each of the paper's experiments with more concurrent pairs than there are CPUs to wake them
/// all.
#[test]
fn counters_balance_with_many_pairs_with_time() {
    let _alone = alone();
    require_root!();
    for (experiment, technique, pairs) in [
        ("claassen2016-local-tcp", "macvlan/bridge/tcp", 128),
        ("claassen2016-local-udp", "macvlan/bridge/udp", 128),
        ("claassen2016-switched-tcp", "vxlan/tcp", 16),
        ("claassen2016-switched-udp", "vxlan/udp", 16),
    ] {
        let name = format!("{experiment}, {technique} x {pairs}");
        let pairs_word = pairs.to_string();
        let words = [experiment, "--technique", technique, "--pairs", &pairs_word, "--mtu", "1500"];
        let (json, results) =
            bench(&[&words[..], &["--duration", "0.5", "--trials", "1"]].concat());
        assert_schema(&json);
        for row in &results.results {
            let measured = row.measured().unwrap_or_else(|| panic!("{name}: {:?}", row.outcome));
            assert!(!measured.counters_disagree() && measured.received > 0, "{name}: {measured:?}");
            assert_eq!(measured.sent, common::accounted(measured), "{name}: {measured:?}");
        }
        results.streams.iter().for_each(check_bytes);
        let of_pairs = results.results.iter().map(|row| row.pairs);
        let of_pairs: Vec<_> =
            of_pairs.chain(results.streams.iter().map(|row| row.pairs)).collect();
        assert_eq!(of_pairs, [pairs], "{name}");
    }
}

#[test]
fn unix_datagrams_are_never_lost() {
    let _alone = alone();
    require_root!();
    let words = ["--technique", "unix", "--size", "64,1500", "--duration", "0.2", "--pairs", "1,3"];
    let (json, results) = bench(&words);
    assert_schema(&json);
    assert_eq!(results.results.len(), 2 * 2 * 2);
    for row in &results.results {
        let measured = row.measured().unwrap_or_else(|| panic!("{:?}", row.outcome));
        assert!(
            !measured.counters_disagree() && measured.received > 0,
            "{}: {measured:?}",
            row.technique
        );
        assert_eq!((measured.lost, measured.sent), (0, measured.received), "{}", row.technique);
    }
}

/// Starts a role on this machine's loopback and waits until it runs.
fn start(arguments: &str) -> Child {
    let arguments = arguments.split_whitespace().chain(["--json"]);
    let child =
        common::command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    assert!(eventually(|| common::runs_role(&child)), "the role does not start");
    child
}

fn report(child: Child) -> Report {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sent(child: Child) -> StreamSendReport {
    let Report::StreamSend(report) = report(child) else { panic!("not a sender's report") };
    report
}

fn received(child: Child) -> StreamReceiveReport {
    common::signal(&child, Signal::INT);
    let Report::StreamReceive(report) = report(child) else { panic!("not a receiver's report") };
    report
}

/// Returns a port that is not in use.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn stream_roles_start_in_either_order() {
    let port = free_port();
    // A sender waits for its receiver.
    let sender = start(&format!("send --port tcp:127.0.0.1:{port} --flows 5 --duration 0.3"));
    let receiver = start(&format!("receive --port tcp:127.0.0.1:{port}?buffer=5000"));
    let small =
        start(&format!("send --port tcp:127.0.0.1:{port}?buffer=333&zerocopy=1 --duration 0.2"));
    let (first, second) = (sent(sender), sent(small));
    let received = received(receiver);
    assert_eq!(first.streams.len(), 5);
    assert!(second.zerocopy.is_some_and(|calls| calls.completed > 0), "{second:?}");
    assert_eq!(received.bytes, first.bytes + second.bytes, "{received:?}");
    assert_eq!((received.corrupt, received.foreign), (0, 0));
    assert_eq!(received.by_tcp, received.bytes, "the kernel counted the same");
    let mut expected = first.streams.clone();
    expected[0] += second.bytes;
    let bytes: Vec<_> = received.streams.iter().map(|stream| stream.bytes).collect();
    assert_eq!(bytes, expected, "by number");
    assert!(received.streams.iter().all(|stream| stream.ended));
}

#[test]
fn foreign_and_corrupt_streams_are_counted() {
    let port = free_port();
    let receiver = start(&format!("receive --port tcp:127.0.0.1:{port}"));
    let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)), "disconnected");
    // A valid header, followed by invalid data.
    let mut liar = TcpStream::connect(("127.0.0.1", port)).unwrap();
    liar.write_all(b"dray 1\r\n\0\0\0\0\0\0\0\x07").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    liar.write_all(&[0; 5000]).unwrap();
    // Connections that send nothing.
    let silent: Vec<_> =
        (0..50).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    for mut stream in silent.into_iter().chain([liar]) {
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The receiver has read everything once it closes the connection.
        match stream.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("not closed: {other:?}"),
        }
    }
    let received = received(receiver);
    assert_eq!(received.foreign, 1, "{received:?}");
    assert!(received.corrupt > 0 && received.bytes == 16, "{received:?}");
    assert_eq!(received.streams.len(), 1);
    assert!(received.streams[0].stream == 7 && received.streams[0].ended);
}

#[test]
fn dead_receiver_ends_sender_with_reason() {
    let port = free_port();
    let mut receiver = start(&format!("receive --port tcp:127.0.0.1:{port}"));
    let sender = start(&format!("send --port tcp:127.0.0.1:{port} --duration 60"));
    std::thread::sleep(Duration::from_millis(200));
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    let began = Instant::now();
    let output = sender.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&format!("tcp:127.0.0.1:{port}")), "{message}");
}

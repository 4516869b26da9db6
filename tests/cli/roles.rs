//! The roles as commands, by hand, in containers that have only a link.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::hosts::Hosts;
use crate::common::{self, alone};
use dray_lab::LinkKind;
use dray_traffic::{ForwardReport, ReceiveReport, Report, SendReport};
use rustix::process::Signal;

fn chain(count: usize, addressed: bool) -> Hosts {
    Hosts::chain(count, LinkKind::VETH, 1500, addressed)
}

/// Starts a role in a host's network namespace and waits until its ports are open.
fn start(hosts: &Hosts, host: usize, arguments: &str) -> Child {
    let arguments = arguments.split_whitespace().chain(["--json"]);
    let mut command = common::command();
    hosts.start_role(host, command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

fn report(child: Child) -> Report {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sent(child: Child) -> SendReport {
    let Report::Send(report) = report(child) else { panic!("not a sender's report") };
    report
}

fn received(child: Child) -> ReceiveReport {
    let Report::Receive(report) = report(child) else { panic!("not a receiver's report") };
    report
}

fn forwarded(child: Child) -> ForwardReport {
    let Report::Forward(report) = report(child) else { panic!("not a forwarder's report") };
    report
}

#[test]
fn sender_reaches_receiver_over_every_socket() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, true);
    let udp = ("udp:198.18.0.5:9000-198.18.0.6:9000", "udp:198.18.0.6:9000", 1);
    for (from, to, flows) in [("raw:eth0", "raw:eth0?ethertype=0x0800", 3), udp] {
        for options in ["batch=1&wait=block", "batch=1&wait=poll", "batch=32", "batch=32&wait=poll"]
        {
            let join = |uri: &str| {
                let separator = if uri.contains('?') { '&' } else { '?' };
                format!("{uri}{separator}{options}")
            };
            let receiver = start(&hosts, 1, &format!("receive --port {}", join(to)));
            let sender = start(
                &hosts,
                0,
                &format!(
                    "send --size 300 --rate 10k --duration 0.3 --flows {flows} --port {}",
                    join(from)
                ),
            );
            let sent = sent(sender);
            let received = received(interrupted(receiver));
            assert!(sent.sent > 0 && sent.sent <= 3000, "{from} {options}");
            assert_eq!(received.received, sent.sent, "{from} {options}: {received:?}");
            assert_eq!(received.bytes, sent.sent * 300, "{from} {options}");
            let bad = [received.lost, received.duplicated, received.reordered, received.corrupt];
            assert_eq!(bad, [0; 4], "{from} {options}");
            let streams: Vec<_> = received.streams.iter().map(|s| s.received).collect();
            assert_eq!(streams, sent.streams, "{from} {options}");
        }
    }
}

/// Sends SIGINT, as Ctrl-C does: the role drains its queues and reports.
fn interrupted(child: Child) -> Child {
    common::signal(&child, Signal::INT);
    child
}

#[test]
fn forwarder_and_echo_return_every_frame() {
    let _alone = alone();
    require_root!();
    let hosts = chain(3, false);
    let echo = start(&hosts, 2, "echo --port raw:eth0?batch=64");
    let forwarder = start(&hosts, 1, "forward --both-ways --from raw:eth0?batch=64 --to raw:eth1");
    let receiver = start(&hosts, 0, "receive --port raw:eth0?batch=64");
    let sender = start(&hosts, 0, "send --rate 10k --duration 0.3 --port raw:eth0?batch=64");
    let sent = sent(sender).sent;
    let echoed = forwarded(interrupted(echo));
    let passed = forwarded(interrupted(forwarder));
    let received = received(interrupted(receiver));
    assert!(sent > 0);
    assert_eq!((received.received, received.lost), (sent, 0), "{received:?}");
    assert_eq!((passed.received, passed.transmitted), (2 * sent, 2 * sent));
    assert_eq!((echoed.received, echoed.transmitted), (sent, sent));
}

#[test]
fn role_stops_on_duration_and_ctrl_c() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, false);
    let sender = start(&hosts, 0, "send --rate 20k --port raw:eth0");
    let timed = start(&hosts, 1, "receive --duration 0.5 --port raw:eth0");
    assert!(received(timed).received > 0);
    let endless = start(&hosts, 1, "receive --port raw:eth0");
    sleep(Duration::from_millis(300));
    assert!(received(interrupted(endless)).received > 0);
    let sent = sent(interrupted(sender));
    // Only the frames that were due until then count as offered.
    let due = 20e3 * sent.elapsed_ns as f64 / 1e9;
    assert!(sent.offered.is_some_and(|offered| offered as f64 <= due + 1.0), "{sent:?}");
}

#[test]
fn forwarder_drops_frames_output_cannot_carry() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, true);
    let to = "udp:127.0.0.1:0-127.0.0.1:9";
    let forwarder = start(&hosts, 1, &format!("forward --from raw:eth0 --to {to}"));
    let socket = hosts.within(0, || UdpSocket::bind("198.18.0.5:0")).unwrap();
    socket.send_to(b"fits", "198.18.0.6:9").unwrap();
    // Two fragments, neither of which is a UDP datagram.
    socket.send_to(&[0; 2000], "198.18.0.6:9").unwrap();
    sleep(Duration::from_millis(200));
    let report = forwarded(interrupted(forwarder));
    assert_eq!((report.received, report.transmitted, report.refused), (3, 1, 2), "{report:?}");
}

#[test]
fn other_frames_are_counted_as_foreign() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, true);
    let receiver = start(&hosts, 1, "receive --port raw:eth0");
    let socket = hosts.within(0, || UdpSocket::bind("198.18.0.5:0")).unwrap();
    for _ in 0..5 {
        socket.send_to(b"good day", "198.18.0.6:9").unwrap();
    }
    let output = interrupted(receiver).wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.ends_with("dray: no test frame was received; foreign frames: 5\n"),
        "{message}"
    );
    let Report::Receive(received) = serde_json::from_slice(&output.stdout).unwrap() else {
        panic!("not a receiver's report")
    };
    assert_eq!((received.foreign, received.received, received.corrupt), (5, 0, 0));
}

#[test]
fn frame_above_mtu_is_refused() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, false);
    let mut send = common::command();
    send.args(["send", "--port", "raw:eth0", "--size", "1515"]);
    let output = hosts.within(0, || send.output()).unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("1515") && message.contains("1514"), "{message}");
}

/// Starts a role on this machine's loopback and waits until it runs.
fn start_here(arguments: &str) -> Child {
    let arguments = arguments.split_whitespace();
    let mut command = common::command();
    let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    assert!(common::eventually(|| common::runs_role(&child)), "the role does not start");
    child
}

/// Returns exit status, standard output and standard error of a role.
fn end(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Returns the address of a UDP port that is not in use.
fn free_address() -> String {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Neither the time without frames nor frames of others count.
#[test]
fn short_run_shows_offered_rate() {
    let _alone = alone();
    let address = free_address();
    let receiver = start_here(&format!("receive --json --port udp:{address}?batch=64"));
    let foreign = UdpSocket::bind("127.0.0.1:0").unwrap();
    foreign.send_to(b"good day", &address).unwrap();
    sleep(Duration::from_secs(2));
    let to = format!("udp:127.0.0.1:0-{address}");
    let began = Instant::now();
    let sent = sent(start_here(&format!("send --json --rate 1k -t 0.3 --port {to}")));
    // A busy receiver takes the last frames later. Both pauses are longer than this, so that a rate
    // over one of them would be too low.
    sleep(Duration::from_secs(1));
    let most = began.elapsed();
    sleep(most);
    foreign.send_to(b"good night", &address).unwrap();
    let received = received(interrupted(receiver));
    assert_eq!((received.foreign, received.received), (2, sent.sent));
    let rate = received.arrivals.frames_per_second().unwrap();
    assert!(rate > (sent.sent - 1) as f64 / most.as_secs_f64(), "{rate}: {most:?} {sent:?}");
}

#[test]
fn count_ends_sender_and_ping() {
    let _alone = alone();
    let (status, stdout, stderr) = end(start_here("send -p null: -c 1000 -r 1Mbit -s 125 --json"));
    assert_eq!(status, Some(0), "{stderr}");
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["send"]["sent"], 1000, "{stdout}");
    // The last frame is due after 999 ms; a busy machine may delay it.
    assert!(report["send"]["elapsed_ns"].as_u64().unwrap() >= 999_000_000, "{stdout}");
    let (ours, theirs) = (free_address(), free_address());
    let echo = start_here(&format!("echo --port udp:{theirs}-{ours}"));
    let ping = start_here(&format!("ping --count 3 --rate 100pps --port udp:{ours}-{theirs}"));
    let (status, stdout, stderr) = end(ping);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.starts_with("sent 3 frames, 3 came back,"), "{stdout}");
    assert_eq!(end(interrupted(echo)).0, Some(0));
}

#[test]
fn count_ends_receiver_exactly() {
    let _alone = alone();
    let address = free_address();
    let receive = format!("receive --json --count 100 --port udp:{address}?batch=64");
    let receiver = start_here(&receive);
    let send = format!("send --count 250 --rate 1k --port udp:127.0.0.1:0-{address}");
    assert_eq!(end(start_here(&send)).0, Some(0));
    assert_eq!(received(receiver).received, 100);
    // Too few in time.
    let receiver = start_here(&format!("receive --count 100 -t 3 --port udp:{address}"));
    let send = format!("send --count 5 --rate 50 --port udp:127.0.0.1:0-{address}");
    assert_eq!(end(start_here(&send)).0, Some(0));
    let (status, stdout, stderr) = end(receiver);
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.starts_with("received 5 frames"), "{stdout}");
    assert!(stderr.ends_with("dray: received 5 of 100 frames\n"), "{stderr}");
}

#[test]
fn rates_are_printed_to_standard_error_each_interval() {
    let _alone = alone();
    let is_rate = |line: &str| line.contains("pps") && line.contains("b/s");
    let (status, stdout, stderr) = end(start_here("send -p null: -t 0.65 -r 10k -i 0"));
    assert_eq!((status, stdout.lines().count()), (Some(0), 1), "{stdout} {stderr}");
    assert!(!stderr.lines().any(is_rate), "{stderr}");

    let began = Instant::now();
    let mut sender = start_here("send -p null: -r 10k -t 20 -i 0.1");
    let mut stderr = BufReader::new(sender.stderr.take().unwrap()).lines().map(Result::unwrap);
    // A busy machine may delay a line, but each line is about another interval, so three whole
    // intervals lie between the first line and the fifth.
    let rates = stderr.by_ref().filter(|line| is_rate(line)).take(5).count();
    assert_eq!(rates, 5);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    common::signal(&sender, Signal::INT);
    drop(stderr.by_ref().last());
    let (status, stdout, _) = end(sender);
    assert_eq!((status, stdout.lines().count()), (Some(0), 1), "{stdout}");
}

#[test]
fn nothing_received_is_status_1() {
    let _alone = alone();
    let address = free_address();
    let to = format!("udp:127.0.0.1:0-{address}");
    let _silent = UdpSocket::bind(&address).unwrap();
    for (role, why) in [
        (format!("receive -t 0.1 --port udp:{}", free_address()), "no test frame was received"),
        (format!("echo -t 0.1 --port udp:{}-{address}", free_address()), "no frame was forwarded"),
        (format!("ping -t 0.1 --port {to}"), "no reply came"),
        (format!("receive -t 0.1 --port tcp:{address}"), "nothing was received"),
    ] {
        let (status, stdout, stderr) = end(start_here(&role));
        assert_eq!(status, Some(1), "{role}: {stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with(&format!("dray: {why}")), "{role}: {stderr}");
        assert_eq!(stdout.lines().count(), 1, "{role}: {stdout}");
    }
}

#[test]
fn role_prints_what_it_waits_for() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let socket = socket.display();
    for (role, peer, why) in [
        (format!("receive -t 1.3 -p vhost:{socket}"), "a driver at ", "none has connected"),
        (format!("echo -t 1.3 -p virtio:{socket}"), "a switch at ", "no such socket"),
    ] {
        let (status, _, stderr) = end(start_here(&role));
        assert_eq!(status, Some(1), "{stderr}");
        let line = format!("{peer}{socket}: {why}");
        let lines: Vec<_> = stderr.lines().collect();
        let [waiting, last] = lines[..] else { panic!("{role}: {stderr}") };
        assert_eq!(waiting, format!("waiting for {line}"));
        assert!(last.ends_with(&format!("; it waited for {line}")), "{last}");
    }
}

#[test]
fn silence_is_explained_until_a_frame_arrives() {
    let _alone = alone();
    let address = free_address();
    let receiver = start_here(&format!("receive -p udp:{address}"));
    sleep(Duration::from_millis(1300));
    let sender = start_here(&format!("send -c 10 -r 100 -p udp:127.0.0.1:0-{address}"));
    assert_eq!(end(sender).0, Some(0));
    let (status, stdout, stderr) = end(interrupted(receiver));
    assert_eq!(status, Some(0), "{stderr}");
    let waiting = format!("waiting for a test frame at udp:{address}: none has arrived");
    assert_eq!(stderr.lines().next(), Some(&*waiting));
    assert_eq!(stderr.matches("waiting").count(), 1, "{stderr}");
    assert!(stdout.starts_with("received 10 frames, "), "{stdout}");
}

#[test]
fn port_makes_the_directory_for_sockets() {
    let _alone = alone();
    require_root!();
    let folder = format!("/run/dray/test-{}", std::process::id());
    let (_, _, stderr) = end(start_here(&format!("receive -t 0.1 -p vhost:{folder}/a.sock")));
    assert!(stderr.contains("none has connected"), "{stderr}");
    std::fs::remove_dir(&folder).unwrap();
}

/// The documentation shows the error for a wrong key as it is.
#[test]
fn documented_port_error_is_current() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ports.md");
    let page = std::fs::read_to_string(page).unwrap();
    let output = common::dray(&["receive", "--port", "raw:eth0?bach=64"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(page.contains(&format!("\n{message}```")), "{message}");
}

//! Metrics and health: a real Prometheus scrapes them, and hostile scrapers are bounded.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use dray_lab::NetworkNamespace;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, Started, alone, eventually};

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/monitoring");
/// Addresses in `deploy/monitoring/prometheus.yml`.
const SWITCH: &str = "127.0.0.1:9464";
const UPF: &str = "127.0.0.1:9465";
const PROMETHEUS: &str = "127.0.0.1:9090";

const UPF_CONFIG: &str = r#"
[n3]
mac = "02:00:00:00:03:01"
addresses = ["10.0.3.1"]
[n6]
mac = "02:00:00:00:06:01"
addresses = ["10.0.6.1"]
[generate]
count = 3
gnbs = ["10.0.3.2"]
ue = "10.45.0.1"
"#;

/// A network namespace with programs, and their directory.
struct Node {
    namespace: NetworkNamespace,
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        let (namespace, folder) =
            (NetworkNamespace::scratch().unwrap(), tempfile::tempdir().unwrap());
        let mut ip = Command::new("ip");
        ip.args(["link", "set", "dev", "lo", "up"]);
        assert!(namespace.enter(|| ip.status()).unwrap().success());
        Self { namespace, folder }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts `dray` with words in which `@` stands for the directory.
    fn dray(&self, words: &str) -> Started {
        let mut command = common::command();
        let folder = self.folder.path().display().to_string();
        command.args(words.split(' ').map(|word| word.replace('@', &folder)));
        self.start(&mut command)
    }

    fn start(&self, command: &mut Command) -> Started {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Started(self.namespace.enter(|| command.spawn()).unwrap())
    }

    /// Starts a switch whose metrics are served.
    fn switch(&self, ports: &str) -> Started {
        let words = format!("switch --control @/switch.sock --metrics {SWITCH} {ports}");
        let switch = self.dray(&words);
        assert!(eventually(|| self.connect(SWITCH).is_some()));
        switch
    }

    fn connect(&self, address: &str) -> Option<TcpStream> {
        let stream = self.namespace.enter(|| TcpStream::connect(address)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Some(stream)
    }

    /// Sends bytes and returns the whole reply, if there is one.
    fn exchange(&self, address: &str, request: &[u8]) -> Option<String> {
        let mut stream = self.connect(address)?;
        stream.write_all(request).ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        Some(reply)
    }

    /// Returns status and body of a resource.
    fn get(&self, address: &str, target: &str, accept: &str) -> Option<(u16, String)> {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\
                               Connection: close\r\n\r\n"
        );
        let reply = self.exchange(address, request.as_bytes())?;
        let (head, body) = reply.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        // Prometheus cuts its longer replies into chunks, with a line of the length before each.
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Some((status, if is_chunked { without_chunks(body) } else { body.to_owned() }))
    }

    /// Asks Prometheus for the value of an expression; an error is a panic.
    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let target = format!("/api/v1/query?query={encoded}");
        let (_, body) = self.get(PROMETHEUS, &target, "*/*").expect("Prometheus replies");
        let reply: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(reply["status"], "success", "{expression}: {reply}");
        reply["data"]["result"].as_array().unwrap().clone()
    }
}

fn without_chunks(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let Ok(length @ 1..) = usize::from_str_radix(length, 16) else { break };
        whole += &rest[..length];
        body = &rest[length + 2..];
    }
    whole
}

fn number(sample: &Value) -> f64 {
    sample["value"][1].as_str().unwrap().parse().unwrap()
}

/// Runs promtool with `input`; its words about a mistake are a panic.
fn promtool(words: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(words).current_dir(MONITORING);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "promtool {words:?}: {said}");
}

/// Returns false, and counts the test as skipped, without Prometheus.
fn has_prometheus() -> bool {
    let exists =
        Path::new("/usr/bin/promtool").exists() && Path::new("/usr/bin/prometheus").exists();
    if !exists {
        common::skip("prometheus is not installed: apt install prometheus");
    }
    exists
}

/// Returns the expressions of the dashboard's panels, with values for Grafana's variables.
fn dashboard_expressions() -> Vec<String> {
    let text = fs::read_to_string(format!("{MONITORING}/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expression = |target: &Value| target["expr"].as_str().unwrap().to_owned();
    targets
        .map(expression)
        .map(|text| text.replace("$__rate_interval", "10s").replace("$instance", ".*"))
        .collect()
}

#[test]
fn scrapes_show_switch_and_upf_with_tools() {
    require_root!();
    let _alone = alone();
    if !has_prometheus() {
        return;
    }
    let node = Node::new();
    let switch = node.switch("a=vhost:@/a b=vhost:@/b");
    fs::write(node.at("upf.toml"), UPF_CONFIG).unwrap();
    let _upf = node.dray(&format!(
        "upf --n3 null: --n6 null: --config @/upf.toml --control @/upf.sock --metrics {UPF}"
    ));
    let _receiver = node.dray("receive --port virtio:@/b --duration 600");
    let sender = node.dray("send --port virtio:@/a --rate 1000 --duration 600");

    let (status, text) = node.get(SWITCH, "/metrics", "*/*").unwrap();
    assert_eq!(status, 200);
    promtool(&["check", "metrics"], &text);
    assert!(eventually(|| node.connect(UPF).is_some()));
    promtool(&["check", "metrics"], &node.get(UPF, "/metrics", "text/plain").unwrap().1);
    promtool(&["check", "config", "prometheus.yml"], "");
    promtool(&["check", "rules", "alerts.yml"], "");
    for address in [SWITCH, UPF] {
        for target in ["/livez", "/readyz"] {
            assert_eq!(node.get(address, target, "*/*").unwrap(), (200, "ok\n".to_owned()));
        }
    }

    let config = fs::read_to_string(format!("{MONITORING}/prometheus.yml")).unwrap();
    let config = config.replace("15s", "1s").replace("alerts.yml", &node.at("alerts.yml"));
    fs::write(node.at("prometheus.yml"), config).unwrap();
    fs::copy(format!("{MONITORING}/alerts.yml"), node.at("alerts.yml")).unwrap();
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", node.at("prometheus.yml")));
    prometheus.arg(format!("--storage.tsdb.path={}", node.at("data")));
    prometheus.arg(format!("--web.listen-address={PROMETHEUS}"));
    let _prometheus = node.start(&mut prometheus);
    let is_ready =
        || node.get(PROMETHEUS, "/-/ready", "*/*").is_some_and(|(status, _)| status == 200);
    assert!(eventually(is_ready), "Prometheus does not start");

    let up = || node.query("up == 1").len();
    assert!(eventually(|| up() == 2), "{:?}", node.query("up"));
    // Prometheus asks for OpenMetrics, where the type belongs to the name without `_total`.
    let types = "/api/v1/targets/metadata?metric=dray_switch_port_receive_frames";
    let (_, types) = node.get(PROMETHEUS, types, "*/*").unwrap();
    assert!(types.contains(r#""type":"counter""#), "{types}");
    let received = r#"dray_switch_port_receive_frames_total{port="a"}"#;
    let rate = |what: &str| node.query(&format!("rate({what}[10s])")).first().map(number);
    let is_right = |rate: f64| (900.0..1100.0).contains(&rate);
    assert!(eventually(|| rate(received).is_some_and(is_right)), "{:?}", rate(received));
    let busy = node.query("rate(dray_switch_worker_busy_seconds_total[10s])");
    assert!((0.0..1.0).contains(&number(&busy[0])) && number(&busy[0]) > 0.0, "{busy:?}");
    let batch = "dray_switch_worker_frames_total / dray_switch_worker_batches_total";
    assert!((1.0..=256.0).contains(&number(&node.query(batch)[0])));
    assert_eq!(node.query("dray_switch_port_ring_size").len(), 4);
    assert_eq!(number(&node.query("dray_upf_sessions")[0]), 3.0);
    for expression in dashboard_expressions() {
        let found = || !node.query(&expression).is_empty();
        assert!(eventually(found), "{expression}: nothing");
    }
    // All alerts are evaluated.
    let rules = || {
        let (_, rules) = node.get(PROMETHEUS, "/api/v1/rules", "*/*").unwrap();
        let rules: Value = serde_json::from_str(&rules).unwrap();
        let groups = rules["data"]["groups"].as_array().unwrap().iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
        rules.map(|rule| rule["health"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all_ok = || !rules().is_empty() && rules().iter().all(|health| health == "ok");
    assert!(eventually(all_ok), "{:?}", rules());

    // In the end Prometheus and the switch have counted the same.
    common::signal(&sender.0, Signal::INT);
    drop(sender);
    let stats = || {
        let control = node.at("switch.sock");
        let stats = common::success(&["switch", "stats", "--json", "--control", &control]);
        let stats: Value = serde_json::from_str(&stats).unwrap();
        stats[0]["rx_frames"].as_f64().unwrap()
    };
    assert!(eventually(|| number(&node.query(received)[0]) == stats()));
    let down = r#"dray_switch_port_up{port="a"}"#;
    assert!(eventually(|| number(&node.query(down)[0]) == 0.0));
    drop(switch);
    assert!(eventually(|| node.query(r#"up{job="dray-switch"}"#).first().map(number) == Some(0.0)));
    assert!(eventually(|| !node.query(r#"ALERTS{alertname="DrayDown"}"#).is_empty()));
}

#[test]
fn alerts_fire_with_tools() {
    if has_prometheus() {
        promtool(&["test", "rules", "../../tests/switch/alerts.yml"], "");
    }
}

#[test]
fn hostile_scrapers_neither_see_more_nor_block_others() {
    require_root!();
    let _alone = alone();
    let node = Node::new();
    let _switch = node.switch("a=null: b=null:");
    let request = |request: &str| node.exchange(SWITCH, request.as_bytes()).unwrap();
    for (line, status) in [
        ("GET /ports", 404),
        ("GET /config", 404),
        ("GET /", 404),
        ("DELETE /ports/a", 404),
        ("POST /metrics", 405),
        ("HEAD /metrics", 405),
        ("GET /metrics?x=1", 400),
        ("GET metrics", 400),
    ] {
        let reply = request(&format!("{line} HTTP/1.1\r\n\r\n"));
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {reply}");
    }
    let long = request("POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
    assert!(long.starts_with("HTTP/1.1 413 "), "{long}");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000));
    assert!(request(&long).starts_with("HTTP/1.1 431 "));

    // Scrapers that are silent, and ones that ask and do not read.
    let mut held = Vec::new();
    for number in 0..120 {
        let mut stream = node.connect(SWITCH).unwrap();
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        }
        held.push(stream);
    }
    // One more of the same address is refused while the threads of those that were closed are
    // ending.
    let began = Instant::now();
    let is_served = || matches!(node.get(SWITCH, "/metrics", "*/*"), Some((200, _)));
    assert!(eventually(is_served), "a reply in spite of them");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(
        common::success(&["switch", "ports", "--control", &node.at("switch.sock")]).contains('a')
    );
}

/// Opens silent connections to `address` from the address `source`, up to 500 a second, until
/// `done`, and holds the last thousand. Returns how many there were.
fn flood(node: &Node, source: &str, address: &str, done: &AtomicBool) -> usize {
    let [source, address]: [SocketAddr; 2] =
        [&format!("{source}:0"), address].map(|address| address.parse().unwrap());
    let open = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        bind(&socket, &source).unwrap();
        let connected = connect(&socket, &address);
        assert!(matches!(connected, Ok(()) | Err(Errno::INPROGRESS)), "{connected:?}");
        socket
    };
    let flooded = node.namespace.enter(|| {
        let (mut held, mut opened) = (VecDeque::new(), 0);
        while !done.load(Ordering::Relaxed) {
            held.push_back(open());
            if held.len() > 1000 {
                held.pop_front();
            }
            opened += 1;
            sleep(Duration::from_millis(2));
        }
        Ok(opened)
    });
    flooded.unwrap()
}

#[test]
fn health_and_scraper_are_served_during_a_flood() {
    require_root!();
    let _alone = alone();
    let node = Node::new();
    let _switch = node.switch("a=null: b=null:");
    fs::write(node.at("upf.toml"), UPF_CONFIG).unwrap();
    let _upf = node.dray(&format!(
        "upf --n3 null: --n6 null: --config @/upf.toml --control @/upf.sock --metrics {UPF}"
    ));
    assert!(eventually(|| node.connect(UPF).is_some()));
    // From another address than the scraper's, and then from its own.
    for (source, is_scraped) in [("127.0.0.2", true), ("127.0.0.1", false)] {
        for (program, address) in [("switch", SWITCH), ("upf", UPF)] {
            let done = AtomicBool::new(false);
            let opened = thread::scope(|scope| {
                let flood = scope.spawn(|| flood(&node, source, address, &done));
                let control = node.at(&format!("{program}.sock"));
                sleep(Duration::from_secs(1));
                for _ in 0..8 {
                    for words in [&["health"][..], &["health", "--ready"]] {
                        let began = Instant::now();
                        let words = [&[program], words, &["--control", &control]].concat();
                        assert_eq!(common::success(&words), "ok\n");
                        // As long as the probes of Kubernetes wait.
                        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
                    }
                    if is_scraped {
                        let began = Instant::now();
                        let (status, text) = node.get(address, "/metrics", "*/*").expect("a reply");
                        assert!(status == 200 && text.contains("dray_build_info"), "{text}");
                        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
                    }
                    sleep(Duration::from_millis(200));
                }
                done.store(true, Ordering::Relaxed);
                flood.join().unwrap()
            });
            assert!(opened > 100, "{program}: only {opened} connections from {source}");
        }
    }
}

/// Connects from `source` to `address` and resets the connection, some thousand times a second
/// until `done`. Returns how often.
fn reset(node: &Node, source: &str, address: &str, done: &AtomicBool) -> usize {
    let [source, address]: [SocketAddr; 2] =
        [&format!("{source}:0"), address].map(|address| address.parse().unwrap());
    let attack = || {
        let mut count = 0;
        while !done.load(Ordering::Relaxed) {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
            // A queue of the kernel that is full would keep the attacker for a second.
            sockopt::set_socket_timeout(
                &socket,
                sockopt::Timeout::Send,
                Some(Duration::from_millis(20)),
            )
            .unwrap();
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
            // All of the attacker's ports may be in use for a moment.
            let connected = bind(&socket, &source).and_then(|()| connect(&socket, &address));
            count += usize::from(connected.is_ok());
            // The attackers leave CPU time to the attacked program, as those on other machines do.
            if count % 4 == 0 {
                sleep(Duration::from_millis(1));
            }
        }
        Ok(count)
    };
    node.namespace.enter(attack).unwrap()
}

impl Node {
    /// Scrapes metrics from the address `source`, and returns the time it took. Waits between
    /// connection and request if the scraper `is_slow`.
    fn scrape(&self, source: &str, address: &str, is_slow: bool) -> Option<Duration> {
        let [source, address]: [SocketAddr; 2] =
            [&format!("{source}:0"), address].map(|address| address.parse().unwrap());
        let began = Instant::now();
        let flags = SocketFlags::CLOEXEC;
        let open = || Ok(socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?);
        let socket = self.namespace.enter(open).unwrap();
        bind(&socket, &source).unwrap();
        let mut stream = TcpStream::from(socket);
        for time in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            sockopt::set_socket_timeout(&stream, time, Some(Duration::from_secs(10))).unwrap();
        }
        connect(&stream, &address).ok()?;
        let slow = Duration::from_millis(if is_slow { 300 } else { 0 });
        sleep(slow);
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        let is_right = reply.starts_with("HTTP/1.1 200 ") && reply.contains("dray_build_info");
        is_right.then(|| began.elapsed() - slow)
    }
}

/// An address floods with silent connections, and with others that it resets, and two other ones
/// are served: one that scrapes often, and connects early, and ones that never came before.
#[test]
fn thousands_of_resets_delay_no_other_address_with_time() {
    require_root!();
    let _alone = alone();
    let node = Node::new();
    let _switch = node.switch("a=null: b=null:");
    fs::write(node.at("upf.toml"), UPF_CONFIG).unwrap();
    let _upf = node.dray(&format!(
        "upf --n3 null: --n6 null: --config @/upf.toml --control @/upf.sock --metrics {UPF}"
    ));
    assert!(eventually(|| node.connect(UPF).is_some()));
    let (node, attacker) = (&node, "127.0.0.2");
    for address in [SWITCH, UPF] {
        let done = &AtomicBool::new(false);
        let (times, resets) = thread::scope(|scope| {
            scope.spawn(|| flood(node, attacker, address, done));
            let resets: Vec<_> =
                (0..4).map(|_| scope.spawn(|| reset(node, attacker, address, done))).collect();
            sleep(Duration::from_secs(1));
            let (began, mut times) = (Instant::now(), Vec::new());
            while began.elapsed() < Duration::from_secs(10) {
                let newcomer = format!("127.0.1.{}", times.len() % 250 + 1);
                times.push(node.scrape("127.0.0.1", address, true));
                times.push(node.scrape(&newcomer, address, false));
            }
            done.store(true, Ordering::Relaxed);
            let resets = resets.into_iter().map(|attack| attack.join().unwrap()).sum::<usize>();
            (times, resets)
        });
        let longest = times.iter().map(|time| time.unwrap_or(Duration::MAX)).max().unwrap();
        let failed = times.iter().filter(|time| time.is_none()).count();
        println!(
            "{address}: {} scrapes, {failed} failed, {longest:?}; {resets} resets",
            times.len()
        );
        assert!(resets > 10_000, "only {resets} resets: no flood");
        assert!(longest < Duration::from_secs(1), "{address}: {failed} failed, {longest:?}");
    }
}

#[test]
fn health_command_fails_with_the_reason() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("none").display().to_string();
    for program in ["switch", "upf"] {
        let output = common::dray(&[program, "health", "--control", &control]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.starts_with("dray: no program listens at "), "{printed}");
    }
}

#[test]
fn metrics_on_control_socket_are_those_of_the_address() {
    require_root!();
    let _alone = alone();
    let node = Node::new();
    let _switch = node.switch("a=null: b=null:");
    let printed = common::success(&["switch", "metrics", "--control", &node.at("switch.sock")]);
    let names = |text: &str| -> Vec<_> {
        text.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let (_, served) = node.get(SWITCH, "/metrics", "*/*").unwrap();
    assert_eq!(names(&printed), names(&served));
    assert!(
        printed.contains("dray_switch_port_info{port=\"a\",uri=\"null:\",pair=\"\"} 1\n"),
        "{printed}"
    );
    assert!(
        printed.contains("dray_switch_port_dropped_frames_total{port=\"b\",reason=\"storm\"} 0\n")
    );
    let resident =
        printed.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    assert!(resident.unwrap().parse::<u64>().unwrap() > 1 << 20);
}

#[test]
fn metrics_address_in_use_is_one_line() {
    let _alone = alone();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("upf.toml"), UPF_CONFIG).unwrap();
    let (control, config, port) = (at("control"), at("upf.toml"), format!("a=vhost:{}", at("a")));
    let upf = ["upf", "--n3", "null:", "--n6", "null:", "--config", &config];
    for words in [&["switch", &port][..], &upf] {
        let output =
            common::dray(&[words, &["--control", &control, "--metrics", &address]].concat());
        let printed = String::from_utf8_lossy(&output.stderr);
        let expected = format!(
            "dray: metrics address {address}: another program listens there; give another one\n"
        );
        assert_eq!((&*printed, output.status.code()), (&*expected, Some(1)));
        assert!(!folder.path().join("a").exists() && !folder.path().join("control").exists());
    }
    let output = common::dray(&["switch", "a=null:", "--metrics", "localhost"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("give an address and a port, such as 127.0.0.1:9464"), "{printed}");
}

//! The control interface over a real socket, with a switch that moves no frames.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_capture::Captures;
use dray_port::Fill;
use dray_wire::MacAddr;
use tempfile::TempDir;

use dray_daemon::{BODY_MAX, ControlSocket, HEAD_MAX, Limits, Server};

use super::answer;
use crate::apply::Configuration;
use crate::changes::{Changes, Plan};
use crate::client::{Client, ClientError};
use crate::config::{Name, Pairs, PortConfig, SwitchConfig};
use crate::control::{
    BypassStatus, PortState, PortStats, PortStatus, Status, SwitchControl, TableEntry, WorkerStatus,
};
use crate::counters::{Counters, DropReason};
use crate::error::SwitchError;
use crate::{Flow, Mode};

/// A switch that keeps its state in memory and moves no frames.
#[derive(Default)]
struct Fake(Mutex<State>);

#[derive(Default)]
struct State {
    mode: Mode,
    ports: Vec<PortConfig>,
    pairs: Pairs,
    table: Vec<TableEntry>,
    /// Counters of the ports at the last reset.
    reset: Vec<PortStats>,
    configured: Vec<Name>,
}

impl SwitchControl for Fake {
    fn captures(&self) -> Arc<Captures> {
        Arc::new(Captures::new(Vec::new(), []))
    }

    /// As if this address lived behind another port.
    fn check_addresses(&self, port: &PortConfig) -> Result<(), SwitchError> {
        match port.macs.first() {
            Some(mac) if *mac == MacAddr::local(1) => Err(SwitchError::AddressLearned {
                port: port.name.as_str().to_owned(),
                mac: *mac,
                other: "up".to_owned(),
                vlan: 10,
            }),
            _ => Ok(()),
        }
    }

    fn add_port(&self, port: &PortConfig, _: Vec<OwnedFd>) -> Result<(), SwitchError> {
        let mut state = self.0.lock().unwrap();
        if state.ports.iter().any(|other| other.name == port.name) {
            return Err(SwitchError::NameTaken(port.name.as_str().to_owned()));
        }
        if port.uri.to_string().starts_with("raw:") {
            return Err(SwitchError::Open("port raw:nosuch0: no such device".to_owned()));
        }
        if state.mode == Mode::Patch {
            state.pairs.add(port)?;
        }
        state.ports.push(port.clone());
        Ok(())
    }

    fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        let mut state = self.0.lock().unwrap();
        let before = state.ports.len();
        state.ports.retain(|port| port.name != *name);
        if state.ports.len() == before {
            return Err(SwitchError::NoSuchPort(name.to_owned()));
        }
        state.pairs.remove(&name.parse().unwrap());
        Ok(())
    }

    fn apply(&self, config: &SwitchConfig, dry_run: bool) -> Result<Changes, SwitchError> {
        let mut state = self.0.lock().unwrap();
        let partner = |port: &PortConfig| state.pairs.partner(&port.name).cloned();
        let running = state.ports.iter().map(|port| (port.clone(), partner(port)));
        let plan = Plan::new(&running.collect::<Vec<_>>(), config, &state.configured)?;
        if !dry_run {
            let others = plan.changes.others.clone();
            state.ports.retain(|port| others.contains(&port.name));
            state.ports.splice(..0, config.ports.iter().cloned());
            state.pairs = plan.pairs;
            state.configured = config.ports.iter().map(|port| port.name.clone()).collect();
        }
        Ok(plan.changes)
    }

    fn configured(&self) -> Vec<Name> {
        self.0.lock().unwrap().configured.clone()
    }

    fn status(&self) -> Status {
        let state = self.0.lock().unwrap();
        Status {
            version: "0.2.0".to_owned(),
            uptime_s: 1.5,
            reset_s: None,
            mode: state.mode,
            flow: Flow::Drop,
            ports: state.ports.len(),
            stations: state.table.len(),
            workers: vec![WorkerStatus {
                cpu: 1,
                ports: Vec::new(),
                load: 0.25,
                work_s: 0.5,
                sleeps: 3,
                batches: 4,
                frames: 100,
            }],
        }
    }

    fn check_alive(&self) -> Result<(), String> {
        Ok(())
    }

    fn ports(&self) -> Vec<PortStatus> {
        let state = self.0.lock().unwrap();
        let mut counters = Counters { rx_frames: 7, ..Counters::default() };
        counters.drops.add(DropReason::ReceiverFull, 5);
        let ports = state.ports.iter().map(|port| PortStatus {
            config: port.clone(),
            state: PortState::Waiting,
            partner: state.pairs.partner(&port.name).cloned(),
            cpu: 1,
            queues: 1,
            features: vec!["VIRTIO_F_VERSION_1".to_owned()],
            stations: 0,
            unreachable: None,
            last_disconnect: Some("the peer closed its socket".to_owned()),
            last_disconnect_at: Some(1_700_000_000),
            disconnects: BTreeMap::from([("the peer closed its socket".to_owned(), 1)]),
            receive_ring: Some(Fill { used: 3, size: 256 }),
            transmit_ring: None,
            bypass: Some(BypassStatus { is_open: true, rx_frames: 2, tx_frames: 1 }),
            counters,
        });
        ports.collect()
    }

    fn table(&self) -> Vec<TableEntry> {
        self.0.lock().unwrap().table.clone()
    }

    fn flush_table(&self) {
        self.0.lock().unwrap().table.clear();
    }

    fn stats_since_reset(&self) -> Vec<PortStats> {
        let ports = self.ports().into_iter().map(PortStats::from);
        let then = &self.0.lock().unwrap().reset;
        ports
            .map(|port| match then.iter().find(|then| then.name == port.name) {
                Some(then) => port.since(then),
                None => port,
            })
            .collect()
    }

    fn reset_stats(&self) {
        let counted = self.ports().into_iter().map(PortStats::from).collect();
        self.0.lock().unwrap().reset = counted;
    }
}

struct Running {
    folder: TempDir,
    path: PathBuf,
    client: Client,
    _server: Server,
}

fn start(mode: Mode) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("switch.sock");
    let table = ["a", "b"].map(|port| TableEntry {
        vlan: 10,
        mac: MacAddr::local(1),
        port: port.parse().unwrap(),
        age_s: 3,
        pinned: false,
    });
    let state = State { mode, table: table.into(), ..State::default() };
    let config = SwitchConfig { mode, control: path.clone().into(), ..SwitchConfig::default() };
    let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
    let socket = ControlSocket::bind(&path.clone().into()).unwrap();
    let config = Configuration::new(config, Vec::new());
    let server = serve(socket, Fake(Mutex::new(state)), config, limits);
    Running { folder, client: Client::new(&path), path, _server: server }
}

fn serve(socket: ControlSocket, switch: Fake, config: Configuration, limits: Limits) -> Server {
    Server::start(socket, limits, move |request| answer(&switch, &config, request))
}

fn port(text: &str) -> PortConfig {
    text.parse().unwrap()
}

impl Running {
    /// Sends `request` unchanged and returns the whole reply.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn request(&self, method: &str, target: &str, body: &str) -> String {
        let length = body.len();
        let head = format!("{method} {target} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        self.raw((head + body).as_bytes())
    }
}

#[test]
fn ports_are_added_listed_and_removed() {
    let switch = start(Mode::Learning);
    let client = &switch.client;
    let wanted = port("a=null:,trunk=10+20,native=1,group=g");
    let added = client.add_port(&wanted).unwrap();
    assert_eq!(added.config, wanted);
    assert_eq!(added.counters.drops.get(DropReason::ReceiverFull), 5);
    client.add_port(&port("b=null:,vlan=10")).unwrap();
    assert_eq!(client.ports().unwrap().len(), 2);
    assert_eq!(client.stats().unwrap()[0].counters, added.counters);
    assert_eq!(client.status().unwrap().ports, 2);
    let config = SwitchConfig::from_toml(&client.config().unwrap()).unwrap();
    assert_eq!(config.ports, [wanted, port("b=null:,vlan=10")]);
    assert_eq!(config.control.path, switch.path);
    client.remove_port(&"a".parse().unwrap()).unwrap();
    assert_eq!(client.ports().unwrap().len(), 1);
}

#[test]
fn table_is_listed_by_port_and_flushed() {
    let switch = start(Mode::Learning);
    let (client, a) = (&switch.client, "a".parse().unwrap());
    client.add_port(&port("a=null:")).unwrap();
    assert_eq!(client.table(None).unwrap().len(), 2);
    assert_eq!(client.table(Some(&a)).unwrap().len(), 1);
    client.flush_table().unwrap();
    assert!(client.table(None).unwrap().is_empty());
}

#[test]
fn reset_leaves_monotonic_counters_unchanged() {
    let switch = start(Mode::Learning);
    let client = &switch.client;
    client.add_port(&port("a=null:")).unwrap();
    let before = client.stats().unwrap();
    assert_eq!(client.stats_since_reset().unwrap(), before);
    client.reset_stats().unwrap();
    let since = client.stats_since_reset().unwrap();
    assert_eq!((since[0].counters, since[0].disconnects.len()), (Counters::default(), 0));
    assert_eq!(client.stats().unwrap(), before);
    // A port added later counts from the time at which it was added.
    client.add_port(&port("b=null:")).unwrap();
    assert_eq!(client.stats_since_reset().unwrap()[1].counters.rx_frames, 7);
}

#[test]
fn client_gets_reason_of_refusal() {
    let switch = start(Mode::Patch);
    let client = &switch.client;
    client.add_port(&port("a=null:")).unwrap();
    client.add_port(&port("b=null:")).unwrap();
    for (result, expected, part) in [
        (client.add_port(&port("a=null:")).map(drop), 409, "\"a\": the name is taken"),
        (
            client.add_port(&port("c=null:,pair=a")).map(drop),
            409,
            "port \"a\" is already paired with \"b\"",
        ),
        (client.add_port(&port("c=null:,vlan=1")).map(drop), 400, "only in mode \"learning\""),
        (client.add_port(&port("c=raw:nosuch0")).map(drop), 500, "raw:nosuch0: no such device"),
        (client.remove_port(&"x".parse().unwrap()), 404, "no such port: \"x\""),
        (client.table(Some(&"x".parse().unwrap())).map(drop), 404, "no such port: \"x\""),
    ] {
        match result.unwrap_err() {
            ClientError::Refused { status, what } => {
                assert_eq!(status, expected, "{what}");
                assert!(what.contains(part), "{what}");
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(client.ports().unwrap().len(), 2);
}

#[test]
fn each_request_gets_its_http_status() {
    let switch = start(Mode::Learning);
    switch.client.add_port(&port("a=null:")).unwrap();
    for (method, target, body, status, part) in [
        ("GET", "/", "", 200, "\"uptime_s\": 1.5"),
        ("GET", "/ports/", "", 200, "\"receiver_full\": 5"),
        ("GET", "/ports/a", "", 200, "\"name\": \"a\""),
        ("GET", "/ports/x", "", 404, "no such port"),
        ("GET", "/nosuch", "", 404, "/ports"),
        ("GET", "/ports/a/b", "", 404, "/ports"),
        ("GET", "/ports?x=1", "", 400, "\\\"x\\\""),
        ("GET", "/table?x=1", "", 400, "takes port"),
        ("GET", "/stats?x=1", "", 400, "takes since"),
        ("GET", "/stats?since=now", "", 400, "allowed is reset"),
        ("GET", "/stats/reset", "", 405, "Allow: POST"),
        ("PUT", "/ports", "", 405, "Allow: GET, POST"),
        ("POST", "/", "", 405, "Allow: GET"),
        ("POST", "/ports/a", "", 405, "Allow: GET, DELETE"),
        ("POST", "/config", "", 405, "Allow: GET, PUT"),
        ("GET", "/config?dry_run=1", "", 400, "takes no keys"),
        ("PUT", "/config?x=1", "", 400, "/config takes dry_run"),
        ("PUT", "/config?dry_run=yes", "", 400, "dry_run=yes: give 0 or 1"),
        ("PUT", "/config", "mode = 'swich'", 400, "line 1: mode: \\\"swich\\\": give one of"),
        (
            "PUT",
            "/config?dry_run=1",
            "",
            400,
            "control = /run/dray/switch.sock: the switch runs with",
        ),
        ("POST", "/ports", "", 400, "ends unfinished"),
        ("POST", "/ports", "{", 400, "ends unfinished"),
        ("POST", "/ports", "[]", 400, "give keys with values"),
        ("POST", "/ports", "{} x", 400, "key \\\"name\\\" is missing at the top level"),
        ("POST", "/ports", r#"{"name": "c", uri: "null:"}"#, 400, "\"error\": \"key must be"),
        ("POST", "/ports", r#"{"name":"c","uri":"null:","vlan":"x"}"#, 400, "\"vlan: "),
        ("POST", "/ports", r#"{"name":"c","uri":7}"#, 400, "\"uri: "),
        ("POST", "/ports", r#"{"name":"c","uri":"null:","vlna":7}"#, 400, "did you mean vlan?"),
        ("POST", "/ports", r#"{"name":"b","uri":"null:"} x"#, 400, "trailing"),
        ("POST", "/ports", r#"{"name":"b","uri":"x:"}"#, 400, "uri: port"),
        ("POST", "/ports", r#"{"name":"/","uri":"null:"}"#, 400, "name: name"),
        ("POST", "/ports", r#"{"name":"b","uri":"null:","vlan":0}"#, 400, "VLAN 0: give 1 to"),
        (
            "POST",
            "/ports",
            r#"{"name":"b","uri":"null:","x":0}"#,
            400,
            "unknown key \\\"x\\\": give one of name",
        ),
        ("POST", "/ports", r#"{"name":"b","uri":"null:","pair":"a"}"#, 400, "mode"),
        ("POST", "/ports", r#"{"name":"a","uri":"null:"}"#, 409, "taken"),
        ("POST", "/ports", r#"{"name":"b","uri":"null:"}"#, 201, "Location: /ports/b"),
        ("DELETE", "/ports/b", "", 204, ""),
        (
            "POST",
            "/ports",
            r#"{"name":"b","uri":"null:","mac":["02:00:00:00:00:01"]}"#,
            409,
            "02:00:00:00:00:01 is a station behind port \\\"up\\\", in VLAN 10; give another",
        ),
        (
            "POST",
            "/ports?force=yes",
            r#"{"name":"b","uri":"null:"}"#,
            400,
            "force=yes: give 0 or 1",
        ),
        ("POST", "/ports?x=1", r#"{"name":"b","uri":"null:"}"#, 400, "/ports takes force"),
        (
            "POST",
            "/ports?force=1",
            r#"{"name":"b","uri":"null:","mac":["02:00:00:00:00:01"]}"#,
            201,
            "",
        ),
        ("DELETE", "/ports/b", "", 204, ""),
        ("DELETE", "/ports/b", "", 404, "no such port"),
        ("DELETE", "/table", "", 204, ""),
    ] {
        let answer = switch.request(method, target, body);
        let what = format!("{method} {target} {body}: {answer}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}");
        assert!(answer.contains(part), "{what}");
        assert!(status < 400 || answer.contains("\"error\": "), "{what}");
    }
}

#[test]
fn file_is_applied_and_ready_follows_it() {
    let switch = start(Mode::Learning);
    let control = switch.path.display();
    let file = |ports: &str| format!("control = '{control}'\nports = [{ports}]");
    let [a, b] = ["a", "b"].map(|name| format!("{{ name = '{name}', uri = 'null:' }}"));
    let both = file(&format!("{a}, {b}"));
    let said = switch.client.apply(&both, true).unwrap().to_string();
    assert_eq!(said, "+ a: uri null:\n+ b: uri null:\nunchanged: 0\n");
    assert_eq!(switch.client.ports().unwrap(), []);
    assert_eq!(switch.client.apply(&both, false).unwrap().to_string(), said);
    assert_eq!(switch.client.apply(&switch.client.config().unwrap(), false).unwrap().unchanged, 2);
    switch.client.remove_port(&"a".parse().unwrap()).unwrap();
    assert!(switch.request("GET", "/readyz", "").starts_with("HTTP/1.1 503"));
    // A port that was removed by hand is not removed again, and no longer missing.
    let said = switch.client.apply(&file(&b), false).unwrap().to_string();
    assert_eq!(said, "unchanged: 1\n");
    assert!(switch.request("GET", "/readyz", "").starts_with("HTTP/1.1 200"));
    let error = switch.client.apply(&file("{ name = 'c', uri = 'x:' }"), false).unwrap_err();
    assert!(error.to_string().starts_with("line 2: ports[0].uri: "), "{error}");
    let answer = switch.request("PUT", "/config?dry_run=1", "\u{0}");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn malformed_or_oversized_request_is_refused() {
    let switch = start(Mode::Learning);
    let large = format!("POST /ports HTTP/1.1\r\nContent-Length: {}\r\n\r\n", 2 * BODY_MAX);
    let body = "x".repeat(2 * BODY_MAX);
    for (request, status) in [
        ("hello\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nx: ".to_owned() + &"y".repeat(2 * HEAD_MAX), 431),
        (large.clone() + &body, 413),
        (large.replace('\n', "\nExpect: 100-continue\r\n"), 413),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 411),
    ] {
        let answer = switch.raw(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // The largest allowed body is accepted, and the reply is "continue".
    let head = format!("POST /ports HTTP/1.1\r\nContent-Length: {BODY_MAX}\r\n");
    let mut stream = UnixStream::connect(&switch.path).unwrap();
    stream.write_all((head + "Expect: 100-continue\r\n\r\n").as_bytes()).unwrap();
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&body.as_bytes()[..BODY_MAX]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn silent_connections_do_not_block_clients() {
    let switch = start(Mode::Learning);
    let silent: Vec<_> = (0..100)
        .map(|number| {
            let mut stream = UnixStream::connect(&switch.path).unwrap();
            if number % 2 == 0 {
                // The server may have closed this connection to make room.
                let _ = stream.write_all(b"POST /ports HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
            }
            stream
        })
        .collect();
    for _ in 0..20 {
        switch.client.status().unwrap();
    }
    assert_eq!(silent.len(), 100);
    // Clients that disconnect do not disturb the server either.
    drop(silent);
    assert!(switch.client.ports().unwrap().is_empty());
}

#[test]
fn slow_request_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("s");
    let limits = Limits { time: Duration::from_millis(50), ..Limits::default() };
    let socket = ControlSocket::bind(&control.clone().into()).unwrap();
    let config = Configuration::new(SwitchConfig::default(), Vec::new());
    let _server = serve(socket, Fake::default(), config, limits);
    let mut stream = UnixStream::connect(&control).unwrap();
    stream.write_all(b"GET / HT").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn control_socket_is_private_and_removed_at_end() {
    let switch = start(Mode::Learning);
    let mode = fs::metadata(&switch.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let Running { folder, path, _server, .. } = switch;
    drop(_server);
    assert!(!path.exists());
    drop(folder);
}

#[test]
fn bind_keeps_live_socket_and_replaces_dead_one() {
    let switch = start(Mode::Learning);
    let error = ControlSocket::bind(&switch.path.clone().into()).unwrap_err().to_string();
    assert!(error.contains("another program uses") && error.contains("switch.sock"), "{error}");
    switch.client.status().unwrap();

    let dead = switch.folder.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let socket = ControlSocket::bind(&dead.clone().into()).unwrap();
    // The path now belongs to another file, which must stay.
    fs::remove_file(&dead).unwrap();
    fs::write(&dead, "precious").unwrap();
    drop(socket);
    let error = ControlSocket::bind(&dead.clone().into()).unwrap_err().to_string();
    assert!(error.contains("not a socket"), "{error}");
    assert_eq!(fs::read(&dead).unwrap(), b"precious");
}

/// Sends `bytes` with `count` descriptors, and closes the connection after the reply. Returns the
/// reply, and fails if the switch keeps one of the descriptors.
#[track_caller]
fn send_descriptors(switch: &Running, bytes: &[u8], count: usize) -> String {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut stream = UnixStream::connect(&switch.path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (mut ours, passed) = UnixStream::pair().unwrap();
    let descriptors = vec![passed.as_fd(); count];
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(count))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let parts = [std::io::IoSlice::new(bytes)];
    sendmsg(&stream, &parts, &mut ancillary, SendFlags::empty()).unwrap();
    drop(passed);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    // The end of the other end: every copy is closed.
    ours.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(ours.read(&mut [0]).unwrap(), 0);
    answer
}

#[test]
fn descriptors_are_taken_or_closed() {
    let switch = start(Mode::Learning);
    let request = |method: &str, target: &str, body: &str| {
        let length = body.len();
        format!("{method} {target} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let port = |name: &str, fd: usize| {
        request("POST", "/ports", &format!(r#"{{"name":"{name}","uri":"vhost:@a","fd":{fd}}}"#))
    };
    for (bytes, count, status, part) in [
        (port("a", 1), 1, 201, "\"fd\": 1"),
        // The names are those of other network namespaces.
        (port("b", 1), 1, 201, "\"fd\": 1"),
        (port("c", 16), 16, 201, "\"fd\": 16"),
        (port("d", 2), 1, 400, "port \\\"d\\\": fd: 2, but the request has 1 file descriptors"),
        (port("d", 0), 1, 400, "fd: 0, but the request has 1 file"),
        (port("d", 18), 18, 400, "too many file descriptors in the request; at most 17"),
        (port("d", 1), 200, 400, "too many file descriptors"),
        (request("POST", "/ports", "{"), 1, 400, "ends unfinished"),
        (
            request("GET", "/ports", ""),
            2,
            400,
            "2 file descriptors in the request; GET /ports takes none",
        ),
        (request("DELETE", "/ports/a", ""), 1, 400, "takes none"),
        ("hello\r\n\r\n".to_owned(), 1, 400, "not HTTP/1.1"),
    ] {
        let answer = send_descriptors(&switch, bytes.as_bytes(), count);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}: {answer}");
        assert!(answer.contains(part), "{bytes}: {answer}");
    }
    // No request follows, or not all of it.
    for bytes in ["G", "POST /ports HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"] {
        send_descriptors(&switch, bytes.as_bytes(), 3);
    }
    // The program that passed them must pass them again.
    assert!(!switch.client.config().unwrap().contains("ports"));
    let answer = switch.request("POST", "/ports", r#"{"name":"e","uri":"null:","fd":1}"#);
    assert!(answer.contains("fd: 1, but the request has 0 file descriptors"), "{answer}");
}

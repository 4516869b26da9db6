//! Cost of an idle switch, and the time that it takes to become ready, to add a port, to connect a
//! driver, and to forward the first frame after a pause.

use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_port::{Frame, LinkState, Port, PortUri};
use dray_switch::PortConfig;
use dray_switch::client::Client;
use dray_traffic::Latency;
use dray_wire::{FRAME_MIN, Flow, test_frame};

const PORTS: usize = 64;
/// Length of the idle period.
const IDLE: Duration = Duration::from_secs(10);
/// Pause between two frames: long enough for a worker to fall asleep.
const PAUSE: Duration = Duration::from_millis(10);
const FRAMES: usize = 500;

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let control = at("control");
    let start = Instant::now();
    let switch = Switch::start(&control, &at("p0"));
    let client = Client::new(&control);
    let ready = wait_for(|| client.status().is_ok(), start);
    println!("ready with one port: {:.1} ms", ms(ready));

    let mut added = Latency::default();
    for number in 1..PORTS {
        let uri = format!("vhost:{}", at(&format!("p{number}")).display());
        let port: PortConfig = serde_json::from_value(serde_json::json!({
            "name": format!("p{number}"), "uri": uri,
        }))
        .expect("a port");
        let start = Instant::now();
        client.add_port(&port).expect("one more port");
        added.record(start.elapsed());
    }
    say("add a port", &added, 1e6, "ms");

    let mut attached = Latency::default();
    let mut ports: Vec<Port> = Vec::new();
    for number in 0..PORTS {
        let uri: PortUri = format!("virtio:{}?wait=poll", at(&format!("p{number}")).display())
            .parse()
            .expect("a short path");
        let start = Instant::now();
        let port = uri.open().expect("a driver");
        let link = port.link.as_ref().expect("it shares memory");
        attached.record(wait_for(|| link.status().state == LinkState::Running, start));
        ports.push(port);
    }
    say("attach a driver", &attached, 1e6, "ms");

    sleep(Duration::from_secs(1));
    let before = switch.cpu_time();
    sleep(IDLE);
    let used = switch.cpu_time() - before;
    let percent = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
    println!("idle with {PORTS} drivers: {percent:.2} % of a core");

    // Each port sends one frame, so that the switch learns its station.
    let mut first = Latency::default();
    for number in 0..FRAMES + PORTS {
        let (from, to) = (number % PORTS, (number + 1) % PORTS);
        let mac = |port: usize| dray_wire::MacAddr::local(port as u64 + 1);
        let flow = Flow { src_mac: mac(from), dst_mac: mac(to), ..Flow::default() };
        let frame = test_frame::build(&flow, FRAME_MIN);
        sleep(PAUSE);
        ports[to].rx[0].receive(&mut |frames| frames.len()).expect("a driver");
        let start = Instant::now();
        let taken = ports[from].tx[0].transmit(&[Frame::from(&frame[..])]).expect("a driver");
        assert_eq!(taken, 1, "an empty ring has room");
        let receive = || ports[to].rx[0].receive(&mut |frames| frames.len()).expect("a driver") > 0;
        let time = wait_for(receive, start);
        if number >= PORTS {
            first.record(time);
        }
    }
    say("first frame after a pause", &first, 1e3, "us");
}

/// A switch with one port. It is stopped when this is dropped.
struct Switch(Child);

impl Switch {
    fn start(control: &Path, port: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dray"));
        command.args(["switch", "--control"]).arg(control);
        command.arg("--port").arg(format!("p0=vhost:{}", port.display()));
        Self(command.spawn().expect("the dray command"))
    }

    fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it runs");
        // Fields 14 and 15 of proc_pid_stat(5); the second field, in brackets, may contain spaces.
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks: u64 = fields[11..=12].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls until `done` returns true. Returns the time since `start`.
fn wait_for(mut done: impl FnMut() -> bool, start: Instant) -> Duration {
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "nothing happened");
        std::hint::spin_loop();
    }
    start.elapsed()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn say(what: &str, times: &Latency, ns: f64, unit: &str) {
    let times = times.percentiles().expect("some");
    let [p50, p99, max] = [times.p50, times.p99, times.max].map(|time| time as f64 / ns);
    println!("{what}: p50 {p50:.2}, p99 {p99:.2}, max {max:.2} {unit}");
}

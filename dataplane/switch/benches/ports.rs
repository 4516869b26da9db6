//! `cargo bench -p dray-switch --bench ports`: cost of a frame in a switch with many vhost ports,
//! in patch mode, and of its silent ports. One thread is the worker and the drivers of all ports in
//! turn, so the figures leave out what passing cache lines between CPUs costs.

use std::path::Path;
use std::time::Duration;

use dray_port::{Frame, LinkState, Port, PortUri, clock};
use dray_switch::{InlineSwitch, SwitchConfig};
use dray_wire::{FRAME_MIN, Flow, test_frame};

const ROUNDS: usize = 20_000;

fn main() {
    println!("ports  silent  frames a round  ns per frame  ns per round");
    for burst in [256, 64, 16] {
        for (ports, silent) in [(2, 0), (2, 14), (2, 30), (2, 62), (8, 0), (32, 0), (64, 0)] {
            measure(ports, silent, burst);
        }
    }
    for silent in [2, 16, 64] {
        measure(0, silent, 0);
    }
}

/// Measures rounds in which half of `ports` have `burst` frames each.
fn measure(ports: usize, silent: usize, burst: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = "mode = \"patch\"\nflow = \"backpressure\"\ncpus = [0]\n".to_owned();
    let sockets: Vec<_> =
        (0..ports + silent).map(|number| directory.path().join(format!("p{number}"))).collect();
    let uris: Vec<_> = sockets.iter().map(|socket| format!("vhost:{}", socket.display())).collect();
    for (number, uri) in uris.iter().enumerate() {
        text += &format!("[[ports]]\nname = \"p{number}\"\nuri = \"{uri}\"\n");
    }
    let config = SwitchConfig::from_toml(&text).expect("a configuration");
    let ours = uris.iter().map(|uri| open(&format!("{uri}?wait=poll"))).collect();
    let mut switch = InlineSwitch::new(&config, ours).expect("a switch");
    switch.step();
    let mut drivers: Vec<Port> = sockets.iter().map(|socket| plug(socket)).collect();
    let bytes = test_frame::build(&Flow::default(), FRAME_MIN);
    let frames = vec![Frame::from(&bytes[..]); burst];
    let (mut moved, mut ticks) = (0, 0);
    for round in 0..ROUNDS / ports.max(1) + 200 {
        for pair in drivers[..ports].chunks_mut(2) {
            pair[0].tx[0].transmit(&frames).expect("a driver");
        }
        let start = clock::ticks();
        switch.round();
        let took = clock::ticks() - start;
        if round % 64 == 0 {
            // A worker does that every millisecond.
            switch.publish();
        }
        let mut received = 0;
        for pair in drivers[..ports].chunks_mut(2) {
            received += pair[1].rx[0].receive(&mut |frames| frames.len()).expect("a driver");
        }
        // The first ones find cold caches.
        if round >= 200 {
            (moved, ticks) = (moved + received, ticks + took);
        }
    }
    let rounds = (ROUNDS / ports.max(1)) as f64;
    let ns = clock::to_duration(ticks).as_nanos() as f64;
    let each = if moved == 0 { 0.0 } else { ns / moved as f64 };
    println!(
        "{ports:5} {silent:7} {:15.0} {each:13.2} {:13.1}",
        moved as f64 / rounds,
        ns / rounds
    );
}

fn open(uri: &str) -> Port {
    uri.parse::<PortUri>().expect("a short path").open().expect("a port")
}

fn plug(socket: &Path) -> Port {
    let port = open(&format!("virtio:{}?wait=poll", socket.display()));
    let link = port.link.as_ref().expect("it shares memory");
    while link.status().state != LinkState::Running {
        std::thread::sleep(Duration::from_micros(100));
    }
    port
}

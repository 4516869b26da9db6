//! Accounts of frames that the kernel drops, and of what it sends by itself.

use dray_port::{Frame, Port};
use dray_upf::DropReason;
use dray_upf::api::{Client, Stats};
use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet};
use rustix::process::Signal;

use crate::common::veths::Veths;
use crate::common::{self, alone, eventually, serves};
use crate::fixture::{CONFIG, Process, Upf, V4, interrupted, number};

const N3_MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 1]);
const N6_MAC: MacAddr = MacAddr([2, 0, 0, 0, 6, 1]);

/// Sends frames that are for the interface `dst`, but neither IP nor ARP.
fn flood(port: &mut Port, dst: MacAddr, frames: u64) {
    let mut frame = [0; 1000];
    let header = Ethernet { dst, src: MacAddr::local(9), ethertype: 0x88b5 };
    header.write(frame.first_chunk_mut::<ETHERNET_LEN>().unwrap());
    let mut sent = 0;
    while sent < frames {
        let batch = [Frame::from(&frame[..]); 32];
        let rest = batch.len().min((frames - sent) as usize);
        sent += port.tx[0].transmit(&batch[..rest]).unwrap() as u64;
    }
}

/// Waits until a stopped process, or one that goes on, is so.
fn signal(process: &Process, signal: Signal, state: &str) {
    common::signal(&process.started().0, signal);
    let status = format!("/proc/{}/status", process.started().0.id());
    let is_so = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let line = text.lines().find(|line| line.starts_with("State:")).unwrap();
        line.contains("stopped") == (state == "stopped")
    };
    assert!(eventually(is_so), "{state}");
}

/// While the process stands still, the kernel drops what its sockets have no room for.
#[test]
fn frames_the_kernel_dropped_are_missed_at_their_interface() {
    const FRAMES: u64 = 20_000;
    let _alone = alone();
    require_root!();
    let schemes = ["raw", "afxdp", "tap"];
    for scheme in schemes {
        let files = Upf::with_config(&format!("{CONFIG}{V4}"));
        let pairs: &[_] = if scheme == "tap" { &[] } else { &[["gnb", "n3"], ["dn", "n6"]] };
        let veths = Veths::new(1, pairs);
        let uri = |name: &str| format!("{scheme}:{name}");
        let upf = veths.0.enter(|| files.start("upf", &uri("n3"), &uri("n6"), &[])).unwrap();
        assert!(eventually(|| serves(files.at("upf.sock"))));
        let client = Client::new(files.at("upf.sock").as_ref());
        client.status().expect("it replies once its ports are open");
        let ends = if scheme == "tap" { ["n3", "n6"] } else { ["gnb", "dn"] };
        let mut ports = ends.map(|name| veths.open(&format!("raw:{name}")));
        let counted = |of: &Stats| [of.uplink, of.downlink].map(|way| (way.rx_packets, way.drops));
        let before = counted(&client.stats().unwrap()).map(|(received, _)| received);
        signal(&upf, Signal::STOP, "stopped");
        for (port, mac) in ports.iter_mut().zip([N3_MAC, N6_MAC]) {
            flood(port, mac, FRAMES);
        }
        signal(&upf, Signal::CONT, "running");
        let all_are_counted = || {
            let now = counted(&client.stats().unwrap());
            now.iter().zip(before).all(|((received, _), before)| *received >= before + FRAMES)
        };
        assert!(eventually(all_are_counted), "{scheme}: {:?}", client.stats());
        let now = client.stats().unwrap();
        for (way, (_, drops)) in ["uplink", "downlink"].into_iter().zip(counted(&now)) {
            let missed = drops.get(DropReason::Missed);
            assert!(missed > 0 && missed < FRAMES, "{scheme}: {now:?}");
            let metric = format!(
                "dray_upf_dropped_packets_total{{direction=\"{way}\",reason=\"missed\"}} {missed}\n"
            );
            let metrics = client.metrics().unwrap();
            assert!(metrics.contains(&metric), "{scheme}: {metric}: {metrics}");
        }
        let shown = String::from_utf8(files.talk(&["stats"]).stdout).unwrap();
        assert!(shown.contains("\n  missed: "), "{shown}");
    }
}

/// On a fresh interface the kernel tests its address, and tells routers of its groups.
#[test]
fn fresh_interface_raises_no_alarm() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["gnb", "n3"], ["dn", "n6"]]);
    let files = Upf::with_config(&format!("{CONFIG}{V4}"));
    let upf = veths.0.enter(|| files.start("upf", "raw:n3", "raw:n6", &[])).unwrap();
    assert!(eventually(|| serves(files.at("upf.sock"))));
    for name in ["gnb", "dn"] {
        veths.ip(&format!("link set dev {name} down"));
        veths.ip(&format!("link set dev {name} addrgenmode eui64 up"));
    }
    // Reports and the test of the address, then a router is asked for.
    let consumed =
        |way: &str| number(&files.ask(&["stats", "--json"]), &format!("/{way}/consumed"));
    let are_heard = || consumed("uplink") >= 3 && consumed("downlink") >= 3;
    assert!(eventually(are_heard), "{:?}", files.ask(&["stats", "--json"]));
    let stats = interrupted(upf);
    for way in ["uplink", "downlink"] {
        let drops = stats[way]["drops"].as_object().unwrap();
        let dropped: Vec<_> = drops.iter().filter(|(_, count)| count.as_u64() != Some(0)).collect();
        assert!(dropped.is_empty(), "{way}: {dropped:?}");
        assert!(number(&stats, &format!("/{way}/generated")) > 0, "{stats}");
    }
}

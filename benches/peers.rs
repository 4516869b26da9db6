//! What other people's switches and endpoints do on this host: millions of frames a second between
//! two ports of a switch. The switch has a CPU of its own, and the endpoints share another. Words on
//! the command line choose cases, such as `ovs-dpdk packed`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_lab::peer::{
    Driver, EndpointPort, EndpointRole, EndpointSettings, Memory, PeerDir, PeerEndpoint, PeerPort,
    PeerSwitch, SwitchKind, SwitchSettings, Wiring,
};
use dray_lab::{Cancel, LabError, placement};

const ROUNDS: usize = 3;
const SAMPLE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
struct Case {
    kind: SwitchKind,
    wiring: Wiring,
    memory: Memory,
    packed: bool,
    is_loop: bool,
    frame_size: u16,
}

fn main() -> Result<(), LabError> {
    // Cargo says --bench.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!(
        "switch    wiring    memory         ring    endpoints  size  Mpps ± %, CPU of the switch \
         per frame, lost"
    );
    let memories = [Memory::HugePages, Memory::OrdinaryPages];
    for kind in SwitchKind::ALL {
        for (wiring, memory) in [Wiring::Pairs, Wiring::Learning]
            .into_iter()
            .flat_map(|wiring| memories.map(|memory| (wiring, memory)))
        {
            let cannot = match kind {
                SwitchKind::Testpmd => wiring == Wiring::Learning,
                SwitchKind::OvsDpdk => memory == Memory::OrdinaryPages,
                _ => true,
            };
            for (packed, is_loop) in [(false, false), (true, false), (false, true), (true, true)] {
                for frame_size in [64, 1500] {
                    let case = Case { kind, wiring, memory, packed, is_loop, frame_size };
                    let name = case.name();
                    if !cannot && words.iter().all(|word| name.contains(word)) {
                        case.run(&name)?;
                    }
                }
            }
        }
    }
    Ok(())
}

impl Case {
    fn name(&self) -> String {
        format!(
            "{:<9} {:<9} {:<14} {:<7} {:<10} {:>4}",
            self.kind.name(),
            format!("{:?}", self.wiring),
            format!("{:?}", self.memory),
            if self.packed { "packed" } else { "split" },
            if self.is_loop { "loop" } else { "two" },
            self.frame_size,
        )
    }

    fn run(&self, name: &str) -> Result<(), LabError> {
        let allowed = placement::allowed();
        let cancel = Cancel::default();
        let dir = PeerDir::new()?;
        let sockets = ["a.sock", "b.sock"].map(|name| dir.join(name));
        let switch = PeerSwitch::start(
            &dir,
            &SwitchSettings {
                kind: self.kind,
                cpu: allowed[allowed.len() - 1],
                wiring: self.wiring,
                memory: self.memory,
                ports: sockets.clone().map(PeerPort::listening).into(),
            },
            &cancel,
        )?;
        let port = |index: usize| EndpointPort {
            driver: Driver::VirtioUser { packed: self.packed, queue_size: 256 },
            ..EndpointPort::connecting(&sockets[index], index as u64 + 1, 2 - index as u64)
        };
        let start = |name: &str, role, ports| {
            let settings = EndpointSettings {
                name: name.to_owned(),
                role,
                cpu: allowed[0],
                shares_cpu: !self.is_loop,
                memory: self.memory,
                ports,
            };
            let mut endpoint = PeerEndpoint::start(&dir, &settings)?;
            endpoint.wait_until_ready(&cancel)?;
            endpoint.start_traffic()?;
            Ok::<_, LabError>(endpoint)
        };
        let frame_size = self.frame_size;
        let endpoints = if self.is_loop {
            let role = EndpointRole::Loop { frame_size, bursts: 8 };
            vec![start("loop", role, vec![port(0), port(1)])?]
        } else {
            let receiver = start("receiver", EndpointRole::Receiver, vec![port(1)])?;
            // The switch learns where it is.
            sleep(Duration::from_millis(300));
            vec![receiver, start("sender", EndpointRole::Sender { frame_size }, vec![port(0)])?]
        };
        sleep(Duration::from_millis(500));
        let mut rates = Vec::new();
        let (mut time, mut sent_in_all, mut received_in_all) = (Duration::ZERO, 0, 0);
        for _ in 0..ROUNDS {
            let moment = (Instant::now(), switch.cpu_time()?, totals(&endpoints)?);
            sleep(SAMPLE);
            let (start, cpu, (sent, received)) = moment;
            let (sent_now, received_now) = totals(&endpoints)?;
            let seconds = start.elapsed().as_secs_f64();
            let cpu_now = switch.cpu_time()?;
            time += cpu_now.user + cpu_now.system - cpu.user - cpu.system;
            sent_in_all += sent_now - sent;
            received_in_all += received_now - received;
            rates.push((received_now - received) as f64 / seconds / 1e6);
        }
        let mean = rates.iter().sum::<f64>() / ROUNDS as f64;
        let spread =
            rates.iter().map(|rate| (rate - mean).abs()).fold(0.0, f64::max) / mean * 100.0;
        println!(
            "{name}  {mean:6.2} ± {spread:4.1}  {:5.0} ns  {:.3} %  (ready in {} ms)",
            time.as_nanos() as f64 / received_in_all as f64,
            100.0 * (1.0 - received_in_all as f64 / sent_in_all as f64).max(0.0),
            switch.ready_after().as_millis(),
        );
        Ok(())
    }
}

/// Frames sent and received by all endpoints.
fn totals(endpoints: &[PeerEndpoint]) -> Result<(u64, u64), LabError> {
    let mut sums = (0, 0);
    for endpoint in endpoints {
        for port in endpoint.counters()? {
            sums.0 += port.sent_frames;
            sums.1 += port.received_frames;
        }
    }
    Ok(sums)
}

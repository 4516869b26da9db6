//! Programs that `dray top` shows, each read by its control socket.

use std::time::Instant;

use dray_daemon::ClientError;
use dray_text::count;
use dray_upf::Counters;
use dray_upf::api::PortStatus;

use super::model::{About, Drops, Port, Reading, Traffic, Worker};

/// A running program.
pub(crate) enum Source {
    Switch(dray_switch::client::Client),
    Upf(dray_upf::api::Client),
    /// The switch of a measurement, which has another socket in each run.
    #[cfg(feature = "laboratory")]
    Bench,
}

impl Source {
    /// Reads the counters and the state of the program.
    pub(crate) fn read(&self) -> Result<Reading, ClientError> {
        match self {
            Self::Switch(client) => switch(client),
            Self::Upf(client) => upf(client),
            #[cfg(feature = "laboratory")]
            Self::Bench => bench(),
        }
    }
}

#[cfg(feature = "laboratory")]
fn bench() -> Result<Reading, ClientError> {
    let sockets = dray_lab::standing::measured_switches();
    let mut readings =
        sockets.iter().map(|socket| switch(&dray_switch::client::Client::new(socket)));
    let running = readings.find_map(Result::ok);
    running.ok_or_else(|| ClientError::NotRunning {
        socket: "a socket of a measurement".into(),
        program: "dray bench --technique switch",
    })
}

fn switch(client: &dray_switch::client::Client) -> Result<Reading, ClientError> {
    let (status, ports) = (client.status()?, client.ports()?);
    let at = Instant::now();
    let lower = |word: &dyn std::fmt::Debug| format!("{word:?}").to_lowercase();
    let stations = count(status.stations, "station");
    Ok(Reading {
        at,
        program: "switch",
        uptime_s: Some(status.uptime_s),
        about: format!("mode {}, flow {}, {stations}", lower(&status.mode), lower(&status.flow)),
        version: status.version,
        workers: status
            .workers
            .into_iter()
            .map(|worker| Worker {
                cpu: worker.cpu,
                ports: worker.ports.iter().map(ToString::to_string).collect(),
                work_s: worker.work_s,
                batches: worker.batches,
                frames: worker.frames,
            })
            .collect(),
        ports: ports.into_iter().map(port).collect(),
    })
}

fn port(port: dray_switch::PortStatus) -> Port {
    let settings = settings(&port);
    let dray_switch::PortStatus { config, state, counters: c, .. } = port;
    let drops = c.drops.iter().map(|(reason, many)| (reason.name(), many));
    Port {
        about: About {
            name: config.name.to_string(),
            uri: config.uri.to_string(),
            state: state.name().to_owned(),
            settings,
            receive_ring: port.receive_ring,
            transmit_ring: port.transmit_ring,
            unreachable: port.unreachable,
            last_disconnect: port.last_disconnect,
            last_disconnect_at: port.last_disconnect_at,
            disconnects: port.disconnects,
        },
        rx: Traffic { frames: c.rx_frames, bytes: c.rx_bytes },
        tx: Traffic { frames: c.tx_frames, bytes: c.tx_bytes },
        drops: drops.collect::<Drops>(),
    }
}

/// Returns configuration and negotiated features of a port, in words.
fn settings(port: &dray_switch::PortStatus) -> Vec<String> {
    let mut settings = vec![format!("CPU {}", port.cpu)];
    settings.push(count(port.queues, "queue"));
    settings.extend(port.partner.as_ref().map(|partner| format!("pair {partner}")));
    settings.push(count(port.stations, "station"));
    // The keys as they are written in a configuration.
    if let Ok(serde_json::Value::Object(keys)) = serde_json::to_value(&port.config) {
        let keys = keys.into_iter().filter(|(key, _)| key != "name" && key != "uri");
        settings.extend(keys.map(|(key, value)| match value {
            serde_json::Value::String(text) => format!("{key} {text}"),
            other => format!("{key} {other}"),
        }));
    }
    let is_open = |open| if open { "bypass open" } else { "bypass closed" };
    settings.extend(port.bypass.map(|bypass| is_open(bypass.is_open).to_owned()));
    settings.extend((!port.features.is_empty()).then(|| port.features.join(" ")));
    settings
}

fn upf(client: &dray_upf::api::Client) -> Result<Reading, ClientError> {
    let (status, stats) = (client.status()?, client.stats()?);
    let at = Instant::now();
    let (up, down) = (&stats.uplink, &stats.downlink);
    // A port receives one direction and sends the other; drops count where the packet came in.
    let directions = [(up, down), (down, up)];
    let port = |(port, (rx, tx)): (PortStatus, (&Counters, &Counters))| Port {
        about: About {
            name: port.name,
            state: format!("{:?}", port.link.state).to_lowercase(),
            settings: vec![port.link.features.join(" ")],
            unreachable: port.link.unreachable,
            last_disconnect: port.link.last_end,
            last_disconnect_at: port.link.last_end_at,
            disconnects: port.link.ends,
            ..About::default()
        },
        rx: Traffic { frames: rx.rx_packets, bytes: rx.rx_bytes },
        tx: Traffic { frames: tx.tx_packets, bytes: tx.tx_bytes },
        drops: rx.drops.iter().map(|(reason, many)| (reason.name(), many)).collect(),
    };
    Ok(Reading {
        at,
        program: "upf",
        uptime_s: Some(status.uptime_s),
        about: format!("{}, at most {}", count(status.sessions, "session"), status.sessions_max),
        version: status.version,
        workers: status
            .workers
            .into_iter()
            .map(|worker| Worker {
                cpu: worker.cpu,
                ports: Vec::new(),
                work_s: worker.work_s,
                batches: worker.batches,
                frames: worker.packets,
            })
            .collect(),
        ports: status.ports.into_iter().zip(directions).map(port).collect(),
    })
}

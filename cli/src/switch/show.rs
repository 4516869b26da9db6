//! Text about a running switch.

use std::time::Duration;

use dray_switch::config::CONTROL;
use dray_switch::{PortStats, PortStatus, Status, SwitchConfig, TableEntry};
use dray_text::{count, table};

use crate::common::scaled;
use crate::service;

/// Returns the text at the start of a switch.
pub(super) fn started(config: &SwitchConfig) -> String {
    let workers = count(config.cpus.len(), "worker");
    let cpus = service::listed(&config.cpus);
    let mode = format!("{:?}", config.mode).to_lowercase();
    let flow = format!("{:?}", config.flow).to_lowercase();
    let head = format!("dray switch: mode {mode}, flow {flow}, {workers} on {cpus}\n");
    let rows = config
        .ports
        .iter()
        .map(|port| vec![port.name.to_string(), port.uri.kind().to_owned(), port.uri.to_string()]);
    let ports = match config.ports.as_slice() {
        [] => "no ports yet\n".to_owned(),
        _ => table(&["port", "what", "where"], rows, 3),
    };
    let next = |option: &str| match config.ports.as_slice() {
        [] => format!("dray switch add-port{option} a vhost:/run/dray/a.sock"),
        _ => format!("dray switch stats --watch{option}"),
    };
    head + &ports + &service::addresses(&config.control.path, CONTROL, config.metrics, next)
}

/// Returns the text at the end of a switch.
pub(super) fn ended(status: &Status, counted: &[PortStats]) -> String {
    let up = Duration::from_secs(status.uptime_s as u64);
    let up = humantime::format_duration(up);
    match counted {
        [] => format!("dray switch: ended after {up}, without ports\n"),
        _ => format!("dray switch: ended after {up}\n{}", stats(counted)),
    }
}

pub(super) fn ports(ports: &[PortStatus]) -> String {
    let word = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut header =
        ["port", "uri", "state", "pair", "vlan", "group", "cpu", "queues", "stations"].to_vec();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for port in ports {
        rows.push(vec![
            port.config.name.to_string(),
            port.config.uri.to_string(),
            port.state.name().to_owned(),
            word(port.partner.as_ref().map(ToString::to_string)),
            port.config.vlan.to_string(),
            word(port.config.group.as_ref().map(ToString::to_string)),
            port.cpu.to_string(),
            port.queues.to_string(),
            port.stations.to_string(),
        ]);
    }
    // An empty column belongs to the other mode, or is not used.
    for column in (3..6).rev() {
        if rows.iter().all(|row| row[column] == "-") {
            header.remove(column);
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    let left = header.len() - 3;
    let mut text = table(&header, rows, left);
    for port in ports {
        if let Some(bypass) = &port.bypass {
            let is = if bypass.is_open { "open" } else { "closed" };
            let (counted, name) = (&port.counters, &port.config.name);
            text.push_str(&format!(
                "{name}: bypass {is}: the kernel forwarded {} of {} rx frames, {} of {} tx frames\n",
                bypass.rx_frames, counted.rx_frames, bypass.tx_frames, counted.tx_frames,
            ));
        }
        if let Some(why) = &port.unreachable {
            text.push_str(&format!("{}: no peer: {why}\n", port.config.name));
        }
        if let Some(why) = &port.last_disconnect {
            text.push_str(&format!("{}: last peer disconnected: {why}\n", port.config.name));
        }
    }
    text
}

pub(super) fn stats(stats: &[PortStats]) -> String {
    let header = ["port", "rx frames", "rx bytes", "tx frames", "tx bytes", "drops", "refused"];
    let rows = stats.iter().map(|port| {
        let c = &port.counters;
        let numbers = [
            c.rx_frames,
            c.rx_bytes,
            c.tx_frames,
            c.tx_bytes,
            c.drops.total(),
            c.addresses_refused,
        ];
        let numbers = numbers.iter().map(u64::to_string);
        [port.name.to_string()].into_iter().chain(numbers).collect()
    });
    let mut text = table(&header, rows, 1);
    for port in stats {
        let drops = port.counters.drops.iter();
        let reasons: Vec<_> =
            drops.map(|(reason, frames)| format!("{} {frames}", reason.name())).collect();
        if !reasons.is_empty() {
            text.push_str(&format!("{}: dropped: {}\n", port.name, reasons.join(", ")));
        }
        let (from, to) = (port.counters.delayed_in, port.counters.delayed_out);
        if from + to != 0 {
            text.push_str(&format!(
                "{}: waited for rate_in {from}, for rate_out {to}\n",
                port.name
            ));
        }
        for (why, times) in &port.disconnects {
            let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
            text.push_str(&format!("{}: disconnected {times}: {why}\n", port.name));
        }
    }
    if stats.iter().any(|port| port.counters.addresses_refused != 0) {
        text.push_str("refused: source addresses not learned: table or port_addresses full.\n");
    }
    for port in stats.iter().filter(|port| port.counters.addresses_limited != 0) {
        let many = port.counters.addresses_limited;
        text.push_str(&format!(
            "{}: {many} source addresses not learned, beyond the storm rate\n",
            port.name
        ));
    }
    text
}

/// Returns the rates between two readings, `time` apart.
pub(super) fn rates(now: &[PortStats], before: &[PortStats], time: Duration) -> String {
    let header = ["port", "rx pps", "rx bit/s", "tx pps", "tx bit/s", "drops/s"];
    let rate = |many: u64| scaled(many as f64 / time.as_secs_f64());
    let counted: Vec<_> = now
        .iter()
        .map(|port| match before.iter().find(|before| before.name == port.name) {
            Some(before) => port.since(before),
            None => port.clone(),
        })
        .collect();
    let rows = counted.iter().map(|port| {
        let c = &port.counters;
        let numbers = [c.rx_frames, 8 * c.rx_bytes, c.tx_frames, 8 * c.tx_bytes, c.drops.total()];
        [port.name.to_string()].into_iter().chain(numbers.map(rate)).collect()
    });
    let mut text = table(&header, rows, 1);
    for port in &counted {
        let drops = port.counters.drops.iter();
        let reasons: Vec<_> =
            drops.map(|(reason, many)| format!("{} {}", reason.name(), rate(many))).collect();
        if !reasons.is_empty() {
            text.push_str(&format!("{}: dropped per second: {}\n", port.name, reasons.join(", ")));
        }
    }
    text
}

pub(super) fn stations(stations: &[TableEntry]) -> String {
    let rows = stations.iter().map(|station| {
        let TableEntry { vlan, mac, port, age_s, pinned } = station;
        let age = if *pinned { "pinned".to_owned() } else { age_s.to_string() };
        vec![mac.to_string(), port.to_string(), vlan.to_string(), age]
    });
    table(&["address", "port", "vlan", "age s"], rows, 2)
}

pub(super) fn status(status: &Status) -> String {
    let Status { version, uptime_s, mode, flow, ports, stations, workers, .. } = status;
    let rows = workers.iter().map(|worker| {
        vec![
            worker.cpu.to_string(),
            worker.ports.len().to_string(),
            format!("{:.0}", 100.0 * worker.load),
            worker.sleeps.to_string(),
        ]
    });
    format!(
        "dray {version}, up {uptime_s:.0} s; mode {}, flow {}; {}, {}\n\n{}",
        format!("{mode:?}").to_lowercase(),
        format!("{flow:?}").to_lowercase(),
        count(*ports, "port"),
        count(*stations, "station"),
        table(&["cpu", "ports", "load %", "sleeps"], rows, 0),
    )
}

#[cfg(test)]
mod tests {
    use dray_switch::{BypassStatus, Counters, DropReason, PortState};

    use super::*;

    fn port(text: &str) -> PortStatus {
        let mut counters = Counters { rx_frames: 7, ..Counters::default() };
        counters.drops.add(DropReason::ReceiverFull, 5);
        PortStatus {
            config: text.parse().unwrap(),
            state: PortState::Running,
            partner: None,
            cpu: 1,
            queues: 2,
            features: Vec::new(),
            stations: 3,
            unreachable: None,
            last_disconnect: None,
            last_disconnect_at: None,
            disconnects: [("invalid ring index".to_owned(), 2)].into(),
            receive_ring: None,
            transmit_ring: None,
            bypass: None,
            counters,
        }
    }

    #[test]
    fn unused_port_columns_are_omitted() {
        let text = ports(&[port("a=null:,vlan=10"), port("b=null:")]);
        let expected = "\
port  uri    state    vlan  cpu  queues  stations
─────────────────────────────────────────────────
a     null:  running  10      1       2         3
b     null:  running  -       1       2         3
";
        assert_eq!(text, expected);
        assert!(!ports(&[port("b=null:")]).contains("vlan"));
        let bypass = Some(BypassStatus { is_open: true, rx_frames: 4, tx_frames: 0 });
        let text = ports(&[PortStatus { bypass, ..port("b=null:") }]);
        let last = "b: bypass open: the kernel forwarded 4 of 7 rx frames, 0 of 0 tx frames\n";
        assert!(text.ends_with(last), "{text}");
        assert_eq!(ports(&[]).lines().count(), 2);
    }

    #[test]
    fn start_names_ports_socket_and_next_command() {
        let mut config = SwitchConfig { cpus: vec![1], ..SwitchConfig::default() };
        let expected = "\
dray switch: mode learning, flow drop, 1 worker on CPU 1
no ports yet
control socket: /run/dray/switch.sock
next, from another terminal: dray switch add-port a vhost:/run/dray/a.sock
";
        assert_eq!(started(&config), expected);
        config.ports = vec!["a=vhost:/run/dray/a.sock".parse().unwrap()];
        config.control = "/tmp/s?mode=0600".parse().unwrap();
        let expected = "\
dray switch: mode learning, flow drop, 1 worker on CPU 1
port  what                 where
────────────────────────────────────────────────────
a     vhost-user back end  vhost:/run/dray/a.sock
control socket: /tmp/s
next, from another terminal: dray switch stats --watch --control /tmp/s
";
        let without_rule = |text: &str| {
            text.lines().filter(|line| !line.starts_with('─')).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(without_rule(&started(&config)), without_rule(expected));
    }

    #[test]
    fn rates_are_differences_per_second() {
        let before = PortStats::from(port("a=null:"));
        let mut now = before.clone();
        now.counters.rx_frames += 3_000_000;
        now.counters.rx_bytes += 300_000_000;
        now.counters.drops.add(DropReason::ReceiverFull, 10);
        let text = rates(&[now], &[before], Duration::from_secs(2));
        let line: Vec<_> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(line, ["a", "1.50M", "1.20G", "0", "0", "5"]);
        assert!(text.ends_with("a: dropped per second: receiver_full 5\n"), "{text}");
    }

    #[test]
    fn stats_list_reasons_of_drops_and_disconnects() {
        let text = stats(&[port("a=null:").into()]);
        assert!(text.ends_with(
            "a: dropped: receiver_full 5\na: disconnected 2 times: invalid ring index\n"
        ));
    }
}

//! Text about a running switch.

use dray_switch::{PortStats, PortStatus, Status, TableEntry};
use dray_text::align;

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
    let mut text = table(&header, rows.collect(), 1);
    for port in stats {
        let drops = port.counters.drops.iter();
        let reasons: Vec<_> =
            drops.map(|(reason, frames)| format!("{} {frames}", reason.name())).collect();
        if !reasons.is_empty() {
            text.push_str(&format!("{}: dropped: {}\n", port.name, reasons.join(", ")));
        }
        for (why, times) in &port.disconnects {
            text.push_str(&format!("{}: disconnected {times} times: {why}\n", port.name));
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

pub(super) fn stations(stations: &[TableEntry]) -> String {
    let rows = stations.iter().map(|station| {
        let TableEntry { vlan, mac, port, age_s, pinned } = station;
        let age = if *pinned { "pinned".to_owned() } else { age_s.to_string() };
        vec![mac.to_string(), port.to_string(), vlan.to_string(), age]
    });
    table(&["address", "port", "vlan", "age s"], rows.collect(), 2)
}

pub(super) fn status(status: &Status) -> String {
    let Status { version, uptime_s, mode, flow, ports, stations, workers } = status;
    let rows = workers.iter().map(|worker| {
        vec![
            worker.cpu.to_string(),
            worker.ports.len().to_string(),
            format!("{:.0}", 100.0 * worker.load),
            worker.sleeps.to_string(),
        ]
    });
    format!(
        "dray {version}, up {uptime_s:.0} s; mode {}, flow {}; {ports} ports, {stations} stations\n\n{}",
        format!("{mode:?}").to_lowercase(),
        format!("{flow:?}").to_lowercase(),
        table(&["cpu", "ports", "load %", "sleeps"], rows.collect(), 0),
    )
}

fn table(header: &[&str], rows: Vec<Vec<String>>, left: usize) -> String {
    let header = header.iter().map(ToString::to_string).collect();
    let lines: Vec<_> = [header].into_iter().chain(rows).collect();
    align(&lines, 1, left)
}

#[cfg(test)]
mod tests {
    use dray_switch::{Counters, DropReason, PortState};

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
            last_disconnect: None,
            disconnects: [("invalid ring index".to_owned(), 2)].into(),
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
        assert_eq!(ports(&[]).lines().count(), 2);
    }

    #[test]
    fn stats_list_reasons_of_drops_and_disconnects() {
        let text = stats(&[port("a=null:").into()]);
        assert!(text.ends_with(
            "a: dropped: receiver_full 5\na: disconnected 2 times: invalid ring index\n"
        ));
    }
}

//! Switches side by side, and the limit of the machine.

use dray_results::{Interval, LimitRow, ResultRow, Results};

use super::cell::{head, mega, or_dash};
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::{align, fit, wrapped};

/// Formats a row for each switch with each endpoint and number of stations, and below them the
/// requirements of each switch.
pub(super) fn table(results: &Results) -> String {
    const FIGURES: [(&str, &str); 5] =
        [("", "Mpps"), ("", "± %"), ("ours", "/ it"), ("cycles", "/frame"), ("of", "limit")];
    let rows = &results.results;
    let sizes = distinct(rows, |row| row.frame_size);
    // A column only if there is something to tell apart: the table is wide.
    let has_stations = rows.iter().any(|row| row.stations > 1);
    let front = |names: [&str; 3]| -> Vec<String> {
        names[..if has_stations { 3 } else { 2 }].iter().map(|&name| name.to_owned()).collect()
    };
    let mut header = front(["switch", "endpoints", "stations"]);
    let mut units = front(["", "", ""]);
    for size in &sizes {
        for (index, (above, below)) in FIGURES.iter().enumerate() {
            header.push(if index == 0 { format!("{size} B") } else { (*above).to_owned() });
            units.push((*below).to_owned());
        }
    }
    let find = |link: &str, endpoint: &str, stations: u16, size: usize| {
        let is_it = |row: &&ResultRow| {
            let ResultRow { link: its, endpoint: of_it, stations: among, frame_size, .. } = row;
            (&its[..], &of_it[..], *among, *frame_size) == (link, endpoint, stations, size)
        };
        rows.iter().find(is_it).and_then(ResultRow::measured)
    };
    let mut cells = vec![header, units];
    if !results.limits.is_empty() {
        let mut line = front(["machine's limit", "", ""]);
        for size in &sizes {
            let limit = results.limits.iter().find(|limit| limit.frame_size == *size);
            line.extend(match limit {
                Some(limit) => {
                    let spread = spread(Interval::of(&limit.samples_pps));
                    [mega(limit.pps), spread, "".into(), "".into(), "1".into()]
                }
                None => std::array::from_fn(|_| String::new()),
            });
        }
        cells.push(line);
    }
    let key = |row: &ResultRow| (row.link.clone(), row.endpoint.clone(), row.stations);
    for (link, endpoint, stations) in distinct(rows, key) {
        if sizes.iter().all(|size| find(&link, &endpoint, stations, *size).is_none()) {
            continue;
        }
        // dray's switch of the same kind; dray's learning switch is compared with its patch.
        let ours = match link.as_str() {
            "switch/learning" => "switch/patch",
            link if link.ends_with("/learning") => "switch/learning",
            _ => "switch/patch",
        };
        let mut line = front([&link, &endpoint, &stations.to_string()]);
        for size in &sizes {
            let Some(it) = find(&link, &endpoint, stations, *size) else {
                line.push("skipped".to_owned());
                line.extend(std::iter::repeat_n(String::new(), FIGURES.len() - 1));
                continue;
            };
            let ratio = find(ours, &endpoint, stations, *size)
                .filter(|_| it.received_pps > 0.0)
                .map(|ours| ours.received_pps / it.received_pps);
            line.extend([
                format!("{}{}", mega(it.received_pps), it.mark()),
                spread(it.interval()),
                or_dash(ratio, 2),
                or_dash(it.switch_cycles_per_frame, 0),
                or_dash(it.limit_share, 2),
            ]);
        }
        cells.push(line);
    }
    let mut text = fit(&cells, 2, front([""; 3]).len(), &[FIGURES.len()]);
    for link in distinct(rows, |row| row.link.clone()) {
        let mine = || rows.iter().filter(|row| row.link == link).filter_map(ResultRow::measured);
        let Some(switch) = mine().find_map(|measured| measured.setting.switch.as_ref()) else {
            continue;
        };
        let others: String = switch.others.iter().map(|other| format!("; {other}")).collect();
        text.push_str(&wrapped(&format!(
            "{link}: ready in {:.0} ms; huge pages: {} MiB; privileges: {}{others}.",
            switch.ready_s * 1e3,
            switch.hugepages_mib,
            switch.privileges
        )));
    }
    text
}

/// Formats the limit of the machine, with a row for each size.
pub(super) fn limits(limits: &[LimitRow]) -> String {
    let mut cells = head("limit of the machine|size|best|±|Gb/s", "|B|Mpps|%|");
    for limit in limits {
        cells.push(vec![
            "one copy, two CPUs".to_owned(),
            limit.frame_size.to_string(),
            mega(limit.pps),
            spread(Interval::of(&limit.samples_pps)),
            format!("{:.1}", limit.pps * limit.frame_size as f64 * 8.0 / 1e9),
        ]);
    }
    align(&cells, 2, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn many_stations_are_compared_with_as_many() {
        let row = |technique: &str, stations: &str, pps: f64| {
            sample::row(technique, 64).with("stations", stations).samples(&[pps])
        };
        let run = sample::run(&sample::results(&[
            row("switch/patch/virtio", "1", 40e6),
            row("switch/learning/virtio", "1", 32e6),
            row("switch/learning/virtio", "1000", 24e6),
            row("ovs-dpdk/learning/virtio", "1", 8e6),
            row("ovs-dpdk/learning/virtio", "1000", 4e6),
        ]));
        let text = table(&run.results);
        // Without the intervals, which one trial each does not have.
        let cells = |line: &str| line.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
        let lines = text.lines().filter(|line| line.contains("virtio")).map(cells);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "switch/patch virtio 1 40.00 - 1.00",
                "switch/learning virtio 1 32.00 - 1.25",
                "switch/learning virtio 1000 24.00 - -",
                "ovs-dpdk/learning virtio 1 8.00 - 4.00",
                "ovs-dpdk/learning virtio 1000 4.00 - 6.00",
            ],
            "{text}"
        );
    }
}

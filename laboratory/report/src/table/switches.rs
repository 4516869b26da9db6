//! Switches side by side, and the limit of the machine.

use dray_results::{Interval, LimitRow, Measured, ResultRow, Results, SwitchFacts};

use super::cell::{head, mega, or_dash};
use crate::distinct::{distinct, grouped};
use crate::number::spread;
use dray_text::{align, fit, wrapped};

/// Figures of a switch at one frame size, below each other in the heading.
const FIGURES: [(&str, &str); 5] =
    [("", "Mpps"), ("", "± %"), ("ours", "/ it"), ("cycles", "/frame"), ("of", "limit")];

/// Formats a row for each switch with each endpoint and number of stations, and below them the
/// requirements of each switch.
pub(super) fn table(results: &Results) -> String {
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
        header.push(format!("{size} B"));
        header.extend(FIGURES[1..].iter().map(|(above, _)| (*above).to_owned()));
        units.extend(FIGURES.map(|(_, below)| below.to_owned()));
    }
    let mut cells = vec![header, units];
    if !results.limits.is_empty() {
        let mut line = front(["machine's limit", "", ""]);
        line.extend(sizes.iter().flat_map(|size| limit_at(&results.limits, *size)));
        cells.push(line);
    }
    let key = |row: &ResultRow| (row.link.clone(), row.endpoint.clone(), row.stations);
    for (link, endpoint, stations) in distinct(rows, key) {
        let of_link = |link: &str, size: usize| {
            let is_it = |row: &&ResultRow| {
                (&*row.link, &row.endpoint, row.stations, row.frame_size)
                    == (link, &endpoint, stations, size)
            };
            rows.iter().find(is_it).and_then(ResultRow::measured)
        };
        if sizes.iter().all(|size| of_link(&link, *size).is_none()) {
            continue;
        }
        let ours = own_switch_like(&link);
        let mut line = front([&link, &endpoint, &stations.to_string()]);
        line.extend(
            sizes.iter().flat_map(|size| figures(of_link(&link, *size), of_link(ours, *size))),
        );
        cells.push(line);
    }
    fit(&cells, 2, front([""; 3]).len(), &[FIGURES.len()]) + &requirements(rows)
}

/// Returns dray's switch of the same kind as `link`. Its learning switch is compared with its
/// patch.
fn own_switch_like(link: &str) -> &'static str {
    let is_other = link != "switch/learning";
    if is_other && link.ends_with("/learning") { "switch/learning" } else { "switch/patch" }
}

/// Formats the figures of a switch, beside those of dray's.
fn figures(it: Option<&Measured>, ours: Option<&Measured>) -> [String; FIGURES.len()] {
    let Some(it) = it else { return ["skipped", "", "", "", ""].map(str::to_owned) };
    let ratio =
        ours.filter(|_| it.received_pps > 0.0).map(|ours| ours.received_pps / it.received_pps);
    [
        format!("{}{}", mega(it.received_pps), it.mark()),
        spread(it.interval()),
        or_dash(ratio, 2),
        or_dash(it.switch_cycles_per_frame, 0),
        or_dash(it.limit_share, 2),
    ]
}

/// Formats the limit of the machine at a frame size, if it was measured.
fn limit_at(limits: &[LimitRow], size: usize) -> [String; FIGURES.len()] {
    let limit = limits.iter().find(|limit| limit.frame_size == size);
    limit.map_or_else(Default::default, |limit| {
        let spread = spread(Interval::of(&limit.samples_pps));
        [mega(limit.pps), spread, String::new(), String::new(), "1".to_owned()]
    })
}

/// Describes what each switch requires.
fn requirements(rows: &[ResultRow]) -> String {
    let measured = rows.iter().filter_map(|row| Some((&row.link, row.measured()?)));
    let switches = measured.filter_map(|(link, it)| Some((link, it.setting.switch.as_ref()?)));
    let describe = |(link, switches): (&String, Vec<&SwitchFacts>)| {
        let switch = switches[0];
        let others: String = switch.others.iter().map(|other| format!("; {other}")).collect();
        wrapped(&format!(
            "{link}: ready in {:.0} ms; huge pages: {} MiB; privileges: {}{others}.",
            switch.ready_s * 1e3,
            switch.hugepages_mib,
            switch.privileges
        ))
    };
    grouped(switches).into_iter().map(describe).collect()
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

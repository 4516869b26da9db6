//! Switches side by side, and the limit of the machine.

use dray_results::{Interval, LimitRow, ResultRow, Results};

use super::cell::mega;
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::{align, fit, wrapped};

/// Formats a row for each switch with each endpoint, and below them the requirements of each
/// switch.
pub(super) fn table(results: &Results) -> String {
    const FIGURES: [(&str, &str); 5] =
        [("", "Mpps"), ("", "± %"), ("ours", "/ it"), ("cycles", "/frame"), ("of", "limit")];
    let rows = &results.results;
    let sizes = distinct(rows, |row| row.frame_size);
    let mut header = vec!["switch".to_owned(), "endpoints".to_owned()];
    let mut units = vec![String::new(), String::new()];
    for size in &sizes {
        for (index, (above, below)) in FIGURES.iter().enumerate() {
            header.push(if index == 0 { format!("{size} B") } else { (*above).to_owned() });
            units.push((*below).to_owned());
        }
    }
    let find = |link: &str, endpoint: &str, size: usize| {
        let is_it = |row: &&ResultRow| {
            (row.link.as_str(), row.endpoint.as_str(), row.frame_size) == (link, endpoint, size)
        };
        rows.iter().find(is_it).and_then(ResultRow::measured)
    };
    let mut cells = vec![header, units];
    if !results.limits.is_empty() {
        let mut line = vec!["limit of the machine".to_owned(), String::new()];
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
    for (link, endpoint) in distinct(rows, |row| (row.link.clone(), row.endpoint.clone())) {
        if sizes.iter().all(|size| find(&link, &endpoint, *size).is_none()) {
            continue;
        }
        // dray's switch of the same kind; dray's learning switch is compared with its patch.
        let ours = match link.as_str() {
            "switch/learning" => "switch/patch",
            link if link.ends_with("/learning") => "switch/learning",
            _ => "switch/patch",
        };
        let mut line = vec![link.clone(), endpoint.clone()];
        for size in &sizes {
            let Some(it) = find(&link, &endpoint, *size) else {
                line.push("skipped".to_owned());
                line.extend(std::iter::repeat_n(String::new(), FIGURES.len() - 1));
                continue;
            };
            let ratio = find(ours, &endpoint, *size)
                .filter(|_| it.received_pps > 0.0)
                .map(|ours| ours.received_pps / it.received_pps);
            let or_dash = |figure: Option<f64>, digits: usize| {
                figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
            };
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
    let mut text = fit(&cells, 2, 2, &[FIGURES.len()]);
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
    let line = |cells: [String; 5]| cells.to_vec();
    let mut cells = vec![
        line(["limit of the machine", "size", "best", "±", "Gb/s"].map(str::to_owned)),
        line(["", "B", "Mpps", "%", ""].map(str::to_owned)),
    ];
    for limit in limits {
        cells.push(line([
            "one copy, two CPUs".to_owned(),
            limit.frame_size.to_string(),
            mega(limit.pps),
            spread(Interval::of(&limit.samples_pps)),
            format!("{:.1}", limit.pps * limit.frame_size as f64 * 8.0 / 1e9),
        ]));
    }
    align(&cells, 2, 1)
}

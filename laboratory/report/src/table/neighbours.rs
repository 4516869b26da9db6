//! Rates and round trips beside a neighbour.

use dray_results::{Neighbour, ResultRow};

use super::cell::{add_columns, head, kilo, or_dash};
use crate::distinct::distinct;
use dray_text::{fit, wrapped};

const NEIGHBOURS: [Neighbour; 3] = [Neighbour::Quiet, Neighbour::Noisy, Neighbour::Confined];

/// Formats a row for each technique and size: the receive rate beside each neighbour, also as a
/// share of the rate beside a quiet one, and the 99th percentile of round trips.
pub(super) fn table(rows: &[ResultRow]) -> String {
    let mut cells = head("technique|size", "|B");
    for neighbour in NEIGHBOURS {
        add_columns(&mut cells, &[(neighbour.to_string().as_str(), "kpps")]);
        if neighbour != Neighbour::Quiet {
            add_columns(&mut cells, &[("of quiet", "%")]);
        }
    }
    for neighbour in NEIGHBOURS {
        add_columns(&mut cells, &[(neighbour.to_string().as_str(), "p99 us")]);
    }
    for (technique, size) in distinct(rows, |row| (row.technique.clone(), row.frame_size)) {
        let find = |is_echo: bool, neighbour: Neighbour| {
            let is_it = |row: &&ResultRow| {
                (&row.technique, row.frame_size) == (&technique, size)
                    && (row.topology == "echo") == is_echo
                    && row.neighbour == Some(neighbour)
            };
            rows.iter().find(is_it).and_then(ResultRow::measured)
        };
        let mut line = vec![technique.clone(), size.to_string()];
        let quiet = find(false, Neighbour::Quiet).map(|measured| measured.received_pps);
        for neighbour in NEIGHBOURS {
            let found = find(false, neighbour);
            line.push(found.map_or("-".to_owned(), |measured| {
                format!("{}{}", kilo(measured.received_pps), measured.mark())
            }));
            if neighbour != Neighbour::Quiet {
                let share = found.zip(quiet.filter(|quiet| *quiet > 0.0));
                let share = share.map(|(measured, quiet)| 100.0 * measured.received_pps / quiet);
                line.push(or_dash(share, 1));
            }
        }
        for neighbour in NEIGHBOURS {
            let latency = find(true, neighbour).and_then(|measured| measured.latency_ns);
            line.push(or_dash(latency.map(|it| it.p99 as f64 / 1e3), 1));
        }
        cells.push(line);
    }
    let writes = rows.iter().filter_map(|row| row.measured()?.neighbour_bytes_per_s);
    let writes = writes.fold(0.0, f64::max);
    fit(&cells, 1, 2, &[1])
        + &wrapped(&format!(
            "noisy: a program on another core writes up to {:.1} GB/s throughout twice the size \
             of the largest cache; confined: the same, limited to the smallest part of the cache.",
            writes / 1e9
        ))
}

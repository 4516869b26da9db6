//! Round-trip times of frames.

use dray_results::{Percentiles, ResultRow};

use super::cell::{head, kilo, loss};
use dray_text::fit;

/// Formats a row for each technique and size: round trips per second, and their times.
pub(super) fn table(rows: &[ResultRow]) -> String {
    let mut cells =
        head("technique|size|round trips|loss|p50|p90|p99|p99.9|max", "|B|k/s|%|us|us|us|us|us");
    for row in rows {
        let mut line = vec![row.technique.clone(), row.frame_size.to_string()];
        if let Some(measured) = row.measured() {
            line.push(format!("{}{}", kilo(measured.received_pps), measured.mark()));
            line.push(loss(measured));
            let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
            match measured.latency_ns {
                Some(Percentiles { p50, p90, p99, p999, max, .. }) => {
                    line.extend([p50, p90, p99, p999, max].map(us));
                }
                None => line.extend([const { String::new() }; 5]),
            }
        } else {
            line.push("skipped".to_owned());
        }
        cells.push(line);
    }
    fit(&cells, 1, 2, &[1])
}

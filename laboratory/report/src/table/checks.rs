//! Cost of a receiver's checks of frames.

use dray_results::{Check, ResultRow};

use super::cell::{head, kilo, or_dash};
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::fit;

/// Formats a row for each technique and size: the receive rate if the receiver only counts frames
/// or fetches their first bytes too, and how far stricter checks fall behind the latter.
pub(super) fn table(rows: &[ResultRow]) -> String {
    let mut cells = head(
        "technique|size|none|±|fetched|±|sampled|±|costs|whole|±|costs",
        "|B|kpps|%|kpps|%|kpps|%|%|kpps|%|%",
    );
    for (technique, size) in distinct(rows, |row| (row.technique.clone(), row.frame_size)) {
        let mut line = vec![technique.clone(), size.to_string()];
        let found = |check: Check| {
            let mine = |row: &&ResultRow| row.technique == technique && row.frame_size == size;
            let mut measured = rows.iter().filter(mine).filter_map(ResultRow::measured);
            measured.find(|measured| measured.check == check)
        };
        let fetched = found(Check::Fetched).map(|it| it.received_pps);
        for check in [Check::None, Check::Fetched, Check::Sampled, Check::Whole] {
            let figures = found(check).map(|it| {
                let rate = format!("{}{}", kilo(it.received_pps), it.mark());
                let less = fetched.map(|fetched| 1.0 - it.received_pps / fetched);
                [rate, spread(it.interval()), or_dash(less.map(|less| 100.0 * less), 1)]
            });
            let figures = figures.unwrap_or(["-", "", ""].map(str::to_owned));
            let reads_payload = matches!(check, Check::Sampled | Check::Whole);
            line.extend(figures.into_iter().take(if reads_payload { 3 } else { 2 }));
        }
        cells.push(line);
    }
    fit(&cells, 1, 2, &[2, 2, 3, 3])
}

//! Switches with many ports.

use dray_results::{Measured, PortLoad, ResultRow, Traffic};

use super::cell::{head, loss, mega, or_dash};
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::{fit, wrapped};

/// Formats a row for each result, and below them the cost of silent ports.
pub(super) fn table(rows: &[ResultRow]) -> String {
    let mut cells = head(
        "technique|traffic|ports|stations|received|±|loss|work|work|lowest|memory",
        "||||Mpps|%|%|ns|cycles|of mean|KiB/port",
    );
    let found: Vec<(&ResultRow, PortLoad, &Measured)> =
        rows.iter().filter_map(|row| Some((row, row.ports?, row.measured()?))).collect();
    for (row, load, measured) in &found {
        cells.push(vec![
            row.technique.clone(),
            match load.traffic {
                Traffic::Pairs => "pairs".to_owned(),
                Traffic::All => "all".to_owned(),
            },
            match load.silent() {
                0 => load.ports.to_string(),
                silent => format!("{}+{silent}", load.active),
            },
            load.all_stations().to_string(),
            format!("{}{}", mega(measured.received_pps), measured.mark()),
            spread(measured.interval()),
            loss(measured),
            or_dash(measured.switch_work_ns(), 1),
            or_dash(measured.switch_work_cycles(), 0),
            or_dash(measured.lowest_share, 2),
            or_dash(memory(load, measured).map(|bytes| bytes / 1024.0), 0),
        ]);
    }
    let mut text = fit(&cells, 2, 4, &[1]);
    text += &wrapped(
        "Ports as ACTIVE+SILENT. Work is the switch's own for each frame, without polling.",
    );
    for (technique, size) in distinct(&found, |(row, ..)| (row.technique.clone(), row.frame_size)) {
        let is_mine = |row: &ResultRow| (&row.technique, row.frame_size) == (&technique, size);
        for (_, load, measured) in found.iter().filter(|(row, ..)| is_mine(row)) {
            let without = PortLoad { ports: load.active, ..*load };
            let without = found.iter().find(|(row, of, _)| is_mine(row) && *of == without);
            let before = without.and_then(|(_, _, measured)| measured.switch_work_ns());
            let Some((before, after)) = before.zip(measured.switch_work_ns()) else { continue };
            if load.silent() > 0 {
                text += &wrapped(&format!(
                    "{technique}: {} silent ports cost {:.1} ns a frame, {:.3} ns each.",
                    load.silent(),
                    after - before,
                    (after - before) / f64::from(load.silent())
                ));
            }
        }
    }
    text
}

/// Returns the memory of the switch for each of its ports, in bytes.
fn memory(load: &PortLoad, measured: &Measured) -> Option<f64> {
    let needs = measured.setting.needs.as_ref()?;
    Some(*needs.memory_bytes.get(dray_results::SWITCH)? as f64 / f64::from(load.ports))
}

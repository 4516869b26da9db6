//! Highest rates within given loss ratios.

use dray_results::{LimitedBy, ResultRow};

use super::cell::{add_columns, head, kilo, or_dash};
use crate::number::spread;
use dray_text::fit;

/// Formats a row for each technique and size: the highest rate and what limits it for each loss
/// ratio, and the cost of the first of these rates.
pub(super) fn table(rows: &[ResultRow]) -> String {
    let losses = rows.iter().filter_map(ResultRow::measured).map(|m| m.drop_rates.as_slice());
    let losses = losses.max_by_key(|rates| rates.len()).unwrap_or_default();
    let mut cells = head("technique|size", "|B");
    for rate in losses {
        let name = if rate.loss_ratio == 0.0 { "NDR" } else { "PDR" };
        let unit = format!("kpps, {} %", 100.0 * rate.loss_ratio);
        add_columns(&mut cells, &[(name, unit.as_str()), ("±", "%"), ("limit", "")]);
    }
    let others = [("Gb/s", ""), ("cores", ""), ("cycles", "/frame"), ("trials", "")];
    add_columns(&mut cells, &others);
    for row in rows {
        // The notes below say why a row has no figures.
        let Some(measured) = row.measured() else { continue };
        let mut line = vec![row.technique.clone(), row.frame_size.to_string()];
        for rate in &measured.drop_rates {
            let by = |limit| rate.searches.iter().all(|search| search.limited_by == limit);
            let limit = if by(LimitedBy::Sender) { "sender" } else { "loss" };
            line.extend([
                format!("{}{}", kilo(rate.pps), measured.mark()),
                spread(rate.interval()),
                limit.to_owned(),
            ]);
        }
        let bits = measured.received_pps * row.frame_size as f64 * 8.0;
        let trials = measured
            .drop_rates
            .first()
            .map_or(0, |rate| rate.searches.iter().map(|search| search.trials).sum::<usize>());
        line.extend([
            format!("{:.2}", bits / 1e9),
            format!("{:.2}", measured.cpu.cores()),
            or_dash(measured.cycles_per_frame, 0),
            trials.to_string(),
        ]);
        cells.push(line);
    }
    fit(&cells, 1, 2, &[3])
}

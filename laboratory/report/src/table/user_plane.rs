//! Capacity of a user plane function.

use dray_results::ResultRow;

use super::cell::{head, kilo, loss, or_dash};
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::{fit, wrapped};

/// Formats a row for each result.
pub(super) fn render(rows: &[ResultRow]) -> String {
    let loads = distinct(rows, |row| row.upf.map(|load| (load.sessions, load.pdrs)));
    let mut cells = head(
        "technique|way|sessions|PDRs|offered|sent|received|±|loss|cores|Mb/s|paper",
        "|||each|kpps|kpps|kpps|%|%|of UPF|per core|Mb/s",
    );
    for row in rows {
        // The notes below say why.
        let (Some(load), Some(measured)) = (row.upf, row.measured()) else { continue };
        let offered = match (row.offered_pps, measured.drop_rates.first()) {
            (Some(pps), _) => kilo(pps),
            (None, Some(_)) => "loss-free".to_owned(),
            (None, None) => "max".to_owned(),
        };
        let received = measured.drop_rates.first().map_or(measured.received_pps, |rate| rate.pps);
        let interval = match measured.drop_rates.first() {
            Some(rate) => rate.interval(),
            None => measured.interval(),
        };
        let mbps = |pps: f64| pps * row.frame_size as f64 * 8.0 / 1e6;
        cells.push(vec![
            row.technique.clone(),
            load.way.short().to_owned(),
            load.sessions.to_string(),
            load.pdrs.to_string(),
            offered,
            kilo(measured.sent_pps),
            format!("{}{}", kilo(received), measured.mark()),
            spread(interval),
            loss(measured),
            or_dash(measured.upf_cores(), 2),
            or_dash(measured.upf_pps_per_core().map(mbps), 0),
            or_dash(row.paper_pps.map(mbps), 0),
        ]);
    }
    // Values common to all rows are printed once.
    let [Some((sessions, pdrs))] = loads[..] else { return fit(&cells, 2, 5, &[1]) };
    cells.iter_mut().for_each(|line| drop(line.drain(2..4)));
    fit(&cells, 2, 3, &[1]) + &wrapped(&format!("{sessions} sessions with {pdrs} PDRs each."))
}

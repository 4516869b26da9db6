//! Formatting of figures in table cells.

use dray_results::Measured;

use crate::number::percent;

/// Returns the two lines above a table: names and units, whose cells are separated by bars.
pub(super) fn head(names: &str, units: &str) -> Vec<Vec<String>> {
    [names, units].map(|line| line.split('|').map(str::to_owned).collect()).to_vec()
}

/// Adds columns, each with name and unit, to the two lines above a table.
pub(super) fn add_columns(head: &mut [Vec<String>], columns: &[(&str, &str)]) {
    for (name, unit) in columns {
        head[0].push((*name).to_owned());
        head[1].push((*unit).to_owned());
    }
}

/// Formats a value with `digits` decimals; a dash without a value.
pub(super) fn or_dash(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

pub(super) fn kilo(pps: f64) -> String {
    if pps < 99.95e3 { format!("{:.1}", pps / 1e3) } else { format!("{:.0}", pps / 1e3) }
}

pub(super) fn mega(pps: f64) -> String {
    format!("{:.2}", pps / 1e6)
}

/// Formats the loss in percent; a loss above 0 is never rounded to 0.
pub(super) fn loss(measured: &Measured) -> String {
    percent(measured.loss_ratio)
}

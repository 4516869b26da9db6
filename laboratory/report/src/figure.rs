//! Figures: a chart with its table and description.

use serde::Serialize;

/// A chart with its table.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// How to read the chart: the quantity on each axis, and which direction is better.
    pub(crate) reading: String,
    /// The chart, as HTML.
    pub(crate) chart: String,
    /// Notes below the chart, as plain text.
    pub(crate) notes: Vec<String>,
    pub(crate) table: Table,
}

/// Figures of a chart as text.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<TableRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// Number columns are right-aligned.
    pub(crate) is_number: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct TableRow {
    /// Number of the technique.
    pub(crate) technique: usize,
    pub(crate) size: usize,
    pub(crate) cells: Vec<String>,
}

impl Table {
    /// Creates a table from the title and unit of each column; a column without a unit is text.
    pub(crate) fn new(columns: &[(&'static str, Option<&'static str>)]) -> Self {
        let column = |&(title, unit): &(&'static str, Option<&'static str>)| Column {
            title,
            unit: unit.unwrap_or(""),
            is_number: unit.is_some(),
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }
}

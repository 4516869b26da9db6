//! Figures: a chart, the table of what is in it, and what both say.

use serde::Serialize;

/// A chart with its table.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// How to read it: what stands along which axis, and which way is better.
    pub(crate) reading: String,
    /// The chart, as HTML.
    pub(crate) chart: String,
    /// Remarks below it, as text.
    pub(crate) notes: Vec<String>,
    pub(crate) table: Table,
}

/// The figures of a chart as text.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<TableRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// Numbers stand to the right.
    pub(crate) is_number: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct TableRow {
    /// The technique's number.
    pub(crate) technique: usize,
    pub(crate) size: usize,
    pub(crate) cells: Vec<String>,
}

impl Table {
    /// A table with these columns: title and unit; one without a unit given is text.
    pub(crate) fn new(columns: &[(&'static str, Option<&'static str>)]) -> Self {
        let column = |&(title, unit): &(&'static str, Option<&'static str>)| Column {
            title,
            unit: unit.unwrap_or(""),
            is_number: unit.is_some(),
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }
}

//! Figures: a chart with its table and description.

use serde::Serialize;

use crate::chart::Chart;
use crate::technique::Technique;

/// A chart with its table.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// How to read the chart: the quantity on each axis, and which direction is better.
    pub(crate) reading: String,
    pub(crate) chart: Chart,
    /// Notes below the chart, as plain text.
    pub(crate) notes: Vec<String>,
    pub(crate) table: Table,
}

/// Figures of a chart as text.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Heading>,
    pub(crate) rows: Vec<TableRow>,
}

/// Heading of a column.
#[derive(Debug, Serialize)]
pub(crate) struct Heading {
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

/// A column of a table of `R`: its heading, and its cell for a row.
pub(crate) struct Column<'c, R> {
    heading: Heading,
    cell: Box<dyn Fn(&R) -> String + 'c>,
}

impl<'c, R> Column<'c, R> {
    /// Creates a column of text.
    pub(crate) fn text(title: &'static str, cell: impl Fn(&R) -> String + 'c) -> Self {
        Self { heading: Heading { title, unit: "", is_number: false }, cell: Box::new(cell) }
    }

    /// Creates a column of numbers in `unit`.
    pub(crate) fn number(
        title: &'static str,
        unit: &'static str,
        cell: impl Fn(&R) -> String + 'c,
    ) -> Self {
        Self { heading: Heading { title, unit, is_number: true }, cell: Box::new(cell) }
    }
}

impl Table {
    /// Creates a table of `rows`; `of` returns a row's technique and its frame size.
    pub(crate) fn new<'t, R>(
        rows: &[R],
        of: impl Fn(&R) -> (&'t Technique, usize),
        columns: Vec<Column<'_, R>>,
    ) -> Self {
        let row = |row: &R| {
            let (technique, size) = of(row);
            let cells = columns.iter().map(|column| (column.cell)(row)).collect();
            TableRow { technique: technique.number, size, cells }
        };
        let rows = rows.iter().map(row).collect();
        Self { rows, columns: columns.into_iter().map(|column| column.heading).collect() }
    }
}

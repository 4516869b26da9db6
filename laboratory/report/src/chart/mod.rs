//! Charts: panels of rows that share an axis, and line plots. `assets/charts.html` draws them.
//!
//! All positions are percentages, so charts fill the available width while text keeps its size, on
//! a phone as on paper. Each shape's `<title>` explains it: browsers show it by themselves, and the
//! page's script shows it better.

mod axis;
mod panel;
mod plot;

use serde::Serialize;

pub(crate) use axis::Axis;
pub(crate) use panel::{Panel, PanelRow, Shape};
pub(crate) use plot::{Plot, Point, Reference, lines};

/// Chart of a figure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chart {
    /// Panels side by side, if the page is wide enough.
    Panels(Vec<Panel>),
    /// Panels below each other.
    WidePanels(Vec<Panel>),
    /// Panels of bars whose parts have these names.
    Bars([&'static str; 4], Vec<Panel>),
    Plot(Plot),
    /// No chart: the table suffices.
    None,
}

//! Panels: a row for each technique, along one axis.

use dray_results::Interval;
use serde::Serialize;

use crate::chart::axis::{Label, labels, with_room};
use crate::number::Unit;
use crate::scale::Scale;
use crate::technique::Technique;

/// Minimum length of a panel's axis when panels are side by side, in pixels.
const TRACK_WIDTH: f64 = 150.0;

/// Rows along one axis.
#[derive(Debug, Serialize)]
pub(crate) struct Panel {
    title: String,
    /// Frame size of all rows.
    size: usize,
    unit: &'static str,
    labels: Vec<Label>,
    /// Position of a line across all rows, and its label.
    reference: Option<(f64, String)>,
    rows: Vec<PanelRow>,
}

/// A technique in a panel.
#[derive(Debug, Serialize)]
pub(crate) struct PanelRow {
    pub(crate) technique: Technique,
    pub(crate) shapes: Vec<Shape>,
    /// The figure, and the small text after it.
    pub(crate) value: (String, String),
    /// Full details, in lines.
    pub(crate) tip: String,
}

/// A shape in a row, from one value to another: in the panel's base unit, and as positions once
/// the row is in a panel.
#[derive(Debug, Serialize)]
pub(crate) struct Shape {
    kind: &'static str,
    from: f64,
    to: f64,
}

impl Shape {
    /// Returns the shapes of a main figure with its interval.
    pub(crate) fn figure(value: f64, interval: Option<Interval>) -> Vec<Self> {
        let whisker = interval.map(Self::whisker);
        [Self::lead(value)].into_iter().chain(whisker).chain([Self::dot(value)]).collect()
    }

    /// Line from the axis to a dot.
    pub(crate) const fn lead(to: f64) -> Self {
        Self { kind: "lead", from: 0.0, to }
    }

    /// Line from one value to another.
    pub(crate) const fn span(from: f64, to: f64) -> Self {
        Self { kind: "span", from, to }
    }

    /// Interval around a dot.
    pub(crate) fn whisker(interval: Interval) -> Self {
        Self { kind: "whisker", from: interval.low(), to: interval.high() }
    }

    /// The main figure.
    pub(crate) const fn dot(value: f64) -> Self {
        Self { kind: "dot", from: value, to: value }
    }

    /// A secondary figure.
    pub(crate) const fn ring(value: f64) -> Self {
        Self { kind: "ring", from: value, to: value }
    }

    /// Mark across the row.
    pub(crate) const fn tick(value: f64) -> Self {
        Self { kind: "tick", from: value, to: value }
    }

    /// Figure of the paper.
    pub(crate) const fn diamond(value: f64) -> Self {
        Self { kind: "diamond", from: value, to: value }
    }

    /// Part of a bar; `kind` is the class of the part, `b0` to `b3`.
    pub(crate) const fn bar(from: f64, to: f64, kind: &'static str) -> Self {
        Self { kind, from, to }
    }
}

impl Panel {
    /// Creates a panel of `rows` with figures in frames of `size` bytes.
    pub(crate) fn new(
        title: String,
        size: usize,
        scale: Scale,
        unit: Unit,
        mut rows: Vec<PanelRow>,
    ) -> Self {
        for shape in rows.iter_mut().flat_map(|row| &mut row.shapes) {
            shape.from = scale.percent(shape.from);
            shape.to = scale.percent(shape.to);
        }
        let mut labels = labels(scale.ticks(), scale, unit);
        // Keeps every second, third and so on, so that the remaining labels are evenly spaced.
        let has_room = |step: &usize| {
            with_room(labels.iter().step_by(*step), TRACK_WIDTH).into_iter().all(|fits| fits)
        };
        let step = (1..labels.len()).find(has_room).unwrap_or(labels.len().max(1));
        for (number, label) in labels.iter_mut().enumerate() {
            label.is_tight = number % step != 0;
        }
        Self { title, size, unit: unit.name, labels, reference: None, rows }
    }

    /// Returns true if the panel has a line across all rows.
    pub(crate) fn has_reference(&self) -> bool {
        self.reference.is_some()
    }

    /// Adds a line across all rows at `position`, in percent of the axis.
    pub(crate) fn with_reference(self, position: f64, label: String) -> Self {
        Self { reference: Some((position, label)), ..self }
    }
}

//! Axes: scale, unit and labels.

use serde::Serialize;

use crate::number::{Unit, plain};
use crate::scale::Scale;

/// An axis of a plot.
#[derive(Debug, Serialize)]
pub(crate) struct Axis {
    /// Quantity and unit.
    title: String,
    pub(super) labels: Vec<Label>,
    #[serde(skip)]
    pub(super) scale: Scale,
}

/// Label of an axis.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Label {
    /// Position in percent of the axis.
    pub(super) at: f64,
    text: String,
    /// True if the label has no room beside the others on a narrow page.
    pub(super) is_tight: bool,
}

impl Axis {
    /// Creates an axis with labels at the ticks of its scale.
    pub(crate) fn new(title: &str, scale: Scale, unit: Unit) -> Self {
        Self::labelled(title, scale, unit, scale.ticks())
    }

    /// Creates an axis with a label at each of `values`.
    pub(crate) fn labelled(
        title: &str,
        scale: Scale,
        unit: Unit,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        let unit_name =
            if unit.name.is_empty() { String::new() } else { format!(", {}", unit.name) };
        let labels = labels(values, scale, unit);
        Self { title: format!("{title}{unit_name}"), labels, scale }
    }
}

/// Returns a label for each of `values`.
pub(super) fn labels(
    values: impl IntoIterator<Item = f64>,
    scale: Scale,
    unit: Unit,
) -> Vec<Label> {
    let label = |value: f64| Label {
        at: scale.percent(value),
        text: plain(value / unit.factor),
        is_tight: false,
    };
    values.into_iter().map(label).collect()
}

/// Returns which labels fit along an axis of `width` pixels, starting with the first: those that
/// are not too close to the previous one.
pub(super) fn with_room<'a>(labels: impl IntoIterator<Item = &'a Label>, width: f64) -> Vec<bool> {
    const DIGIT: f64 = 7.0;
    const GAP: f64 = 7.0;
    // Pixels by which the last label may exceed the axis.
    const BEYOND: f64 = 8.0;
    let mut before = f64::NEG_INFINITY;
    let has_room = |label: &Label| {
        let half = DIGIT * label.text.chars().count() as f64 / 2.0;
        let middle = (label.at / 100.0 * width).min(width + BEYOND - half);
        let has_room = middle - half >= before + GAP;
        if has_room {
            before = middle + half;
        }
        has_room
    };
    labels.into_iter().map(has_room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowded_axis_labels_are_omitted() {
        let labels = |texts: &[(f64, &str)]| {
            let label = |(at, text): &(f64, &str)| Label {
                at: *at,
                text: (*text).to_owned(),
                is_tight: false,
            };
            texts.iter().map(label).collect::<Vec<_>>()
        };
        let far = labels(&[(0.0, "0"), (50.0, "5"), (100.0, "10")]);
        assert_eq!(with_room(&far, 150.0), [true; 3]);
        let near = labels(&[(0.0, "1"), (60.0, "8000"), (62.0, "10000"), (100.0, "1000000")]);
        assert_eq!(with_room(&near, 390.0), [true, true, false, true]);
        assert_eq!(with_room(&near, 100.0), [true, true, false, false]);
        assert_eq!(with_room(&[], 100.0), [false; 0]);
    }
}

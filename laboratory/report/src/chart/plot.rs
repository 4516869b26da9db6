//! Plots: lines over a common pair of axes.

use dray_results::Interval;
use serde::Serialize;

use crate::chart::axis::{Axis, with_room};
use crate::distinct::distinct;
use crate::technique::Technique;

/// Minimum distance of the labels at line ends, in pixels.
const LABEL_HEIGHT: f64 = 15.0;
/// Minimum width in pixels of a plot with labels beside it.
const PLOT_WIDTH: f64 = 390.0;
/// Minimum width of a plot on a phone, in pixels.
const PHONE_WIDTH: f64 = 260.0;

/// Lines over a common pair of axes.
#[derive(Debug, Serialize)]
pub(crate) struct Plot {
    /// Height in pixels.
    height: f64,
    x: Axis,
    y: Axis,
    reference: Option<Reference>,
    series: Vec<Series>,
}

/// A line without figures.
#[derive(Debug, Serialize)]
pub(crate) struct Reference {
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) label: &'static str,
}

/// A line of a [`Plot`].
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    technique: Technique,
    /// Label at the end of the line.
    label: String,
    /// Position of this label, in pixels from the top.
    label_y: f64,
    /// Number of the dash pattern.
    dash: usize,
    pub(crate) points: Vec<Point>,
}

/// Point of a line: in base units, and as positions from the top left once the line is in a plot.
#[derive(Debug, Serialize)]
pub(crate) struct Point {
    size: usize,
    x: f64,
    y: f64,
    /// Ends of the interval of `y`.
    whisker: Option<[f64; 2]>,
    tip: String,
}

impl Point {
    /// Creates a point for a figure in frames of `size` bytes.
    pub(crate) fn new(
        size: usize,
        (x, y): (f64, f64),
        interval: Option<Interval>,
        tip: String,
    ) -> Self {
        Self { size, x, y, whisker: interval.map(|it| [it.low(), it.high()]), tip }
    }
}

/// Draws a line through the points of all rows with the same key, from left to right. `name`
/// returns the technique of a line and its label.
pub(crate) fn lines<'t, R, K: PartialEq>(
    rows: &[R],
    key: impl Fn(&R) -> K,
    name: impl Fn(&K) -> (&'t Technique, String),
    point: impl Fn(&R) -> Point,
) -> Vec<Series> {
    let line = |of: K| {
        let mine = rows.iter().filter(|row| key(row) == of);
        let mut points: Vec<Point> = mine.map(&point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let (technique, label) = name(&of);
        let technique = technique.clone();
        Series { technique, label, label_y: 0.0, dash: 0, points }
    };
    distinct(rows, &key).into_iter().map(line).collect()
}

impl Plot {
    /// Creates a plot of `series` and a reference line, whose points are in base units.
    pub(crate) fn new(
        mut x: Axis,
        mut y: Axis,
        mut reference: Option<Reference>,
        mut series: Vec<Series>,
    ) -> Self {
        let height = (LABEL_HEIGHT * (series.len() + 1) as f64).max(320.0);
        let from_top = |value: f64| 100.0 - y.scale.percent(value);
        for point in series.iter_mut().flat_map(|series| &mut series.points) {
            (point.x, point.y) = (x.scale.percent(point.x), from_top(point.y));
            point.whisker = point.whisker.map(|ends| ends.map(from_top));
        }
        for point in reference.iter_mut().flat_map(|reference| &mut reference.points) {
            *point = (x.scale.percent(point.0), from_top(point.1));
        }
        for label in &mut y.labels {
            label.at = 100.0 - label.at;
        }
        let mut has_room = with_room(&x.labels, PLOT_WIDTH).into_iter();
        x.labels.retain(|_| has_room.next().unwrap_or(false));
        let on_phone = with_room(&x.labels, PHONE_WIDTH);
        for (label, on_phone) in x.labels.iter_mut().zip(on_phone) {
            label.is_tight = !on_phone;
        }
        set_dashes(&mut series);
        let end = |series: &Series| series.points.last().map_or(0.0, |point| point.y);
        let ends: Vec<f64> = series.iter().map(|series| end(series) / 100.0 * height).collect();
        for (series, label_y) in series.iter_mut().zip(spread(&ends, height)) {
            series.label_y = label_y;
        }
        Self { height, x, y, reference, series }
    }
}

/// Chooses the dash pattern of each line, one of five, which distinguishes lines of the same
/// colour.
fn set_dashes(series: &mut [Series]) {
    let mut drawn = [0; 10];
    for series in series {
        let same = &mut drawn[series.technique.colour];
        series.dash = *same % 5;
        *same += 1;
    }
}

/// Returns the positions of the lines' labels, in pixels from the top: at the lines' ends, which
/// are `wanted`, or as near as other labels allow.
fn spread(wanted: &[f64], height: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut placed = vec![0.0; wanted.len()];
    let mut above = f64::NEG_INFINITY;
    for &index in &order {
        placed[index] = wanted[index].max(above + LABEL_HEIGHT);
        above = placed[index];
    }
    // Moves labels that were pushed out at the bottom back up.
    let mut below = height + LABEL_HEIGHT;
    for &index in order.iter().rev() {
        placed[index] = placed[index].min(below - LABEL_HEIGHT);
        below = placed[index];
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_labels_never_overlap_and_stay_inside() {
        for ends in [vec![100.0, 101.0, 99.0], vec![319.0; 20], vec![0.0, 320.0], vec![]] {
            let mut placed = spread(&ends, 320.0);
            assert!(placed.iter().all(|at| (0.0..=320.0).contains(at)), "{placed:?}");
            placed.sort_by(f64::total_cmp);
            let apart = |pair: &[f64]| pair[1] - pair[0] >= LABEL_HEIGHT - 1e-9;
            assert!(placed.windows(2).all(apart), "{placed:?}");
        }
    }
}

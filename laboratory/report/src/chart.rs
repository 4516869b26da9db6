//! Draws charts: panels of rows that share an axis, and line plots.
//!
//! All positions are percentages, so charts fill the available width while text keeps its size, on
//! a phone as on paper. Each shape's `<title>` explains it: browsers show it by themselves, and the
//! page's script shows it better.

use dray_results::Interval;

use crate::distinct::distinct;
use crate::escape::html;
use crate::number::{Unit, plain};
use crate::scale::Scale;
use crate::technique::Techniques;

/// Rows along one axis.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// Frame size of all rows.
    pub(crate) size: usize,
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    /// Reference value for all rows, and its label.
    pub(crate) reference: Option<(f64, String)>,
    pub(crate) rows: Vec<PanelRow>,
}

/// A technique in a panel.
#[derive(Debug)]
pub(crate) struct PanelRow {
    pub(crate) technique: usize,
    pub(crate) shapes: Vec<Shape>,
    /// The figure, and the small text after it.
    pub(crate) value: (String, String),
    /// Full details, in lines.
    pub(crate) tip: String,
}

/// Shapes in a row, in the panel's base unit.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Line from the axis to a dot.
    Lead(f64),
    /// Line from one value to another.
    Span(f64, f64),
    /// Interval around a dot.
    Whisker(f64, f64),
    /// The main figure.
    Dot(f64),
    /// A secondary figure.
    Ring(f64),
    /// Mark across the row.
    Tick(f64),
    /// Figure of the paper.
    Diamond(f64),
    /// Part of a bar: from, to, and the number of the part.
    Bar(f64, f64, usize),
}

impl Panel {
    pub(crate) fn draw(&self, techniques: &Techniques) -> String {
        let mut out = String::new();
        let at = |value: f64| 100.0 * self.scale.position(value);
        out += &format!(
            "<div class=\"panel\" data-s=\"{}\" role=\"group\" tabindex=\"0\" aria-label=\"{title}\">\
             <div class=\"panel-title\">{title}</div><svg class=\"axis\" aria-hidden=\"true\">",
            self.size,
            title = html(&self.title)
        );
        let ticks = self.scale.ticks();
        let labels = labels(&ticks, self.unit, at);
        // Keeps every second, third and so on, so that the remaining labels are evenly spaced.
        let has_room = |step: &usize| {
            let labels: Vec<_> = labels.iter().step_by(*step).cloned().collect();
            with_room(&labels, TRACK_WIDTH).into_iter().all(|has_room| has_room)
        };
        let step = (1..labels.len()).find(has_room).unwrap_or(labels.len().max(1));
        for (number, (x, text)) in labels.iter().enumerate() {
            let tight = if number % step == 0 { "" } else { " class=\"tight\"" };
            // The unit stands after the last label.
            let end = if *x > 99.0 { " dx=\"8\" style=\"text-anchor:end\"" } else { "" };
            out += &format!("<text{tight}{end} x=\"{x:.2}%\" y=\"13\">{text}</text>");
        }
        out += &format!("</svg><div class=\"unit\">{}</div><div class=\"rows\">", self.unit.name);
        out.push_str("<svg class=\"grid\" aria-hidden=\"true\">");
        for tick in &ticks {
            let x = at(*tick);
            out += &format!("<line x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"100%\"/>");
        }
        if let Some((value, _)) = &self.reference {
            let x = at(*value);
            out += &format!(
                "<line class=\"ref\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"100%\"/>"
            );
        }
        out.push_str("</svg>");
        for row in &self.rows {
            let technique = techniques.get(row.technique);
            out += &format!(
                "<div class=\"row\" data-t=\"{}\" data-mark><span class=\"name\"><i class=\"c{}\"></i>{}</span>\
                 <svg class=\"track c{}\"><title>{}</title>",
                row.technique,
                technique.colour,
                html(&technique.name),
                technique.colour,
                html(&row.tip)
            );
            row.shapes.iter().for_each(|shape| shape.draw(&mut out, at));
            let (value, small) = &row.value;
            out += &format!(
                "</svg><span class=\"value\">{} <small>{}</small></span></div>",
                html(value),
                html(small)
            );
        }
        out.push_str("</div>");
        if let Some((_, what)) = &self.reference {
            out += &format!("<div class=\"key\"><i class=\"ref\"></i>{}</div>", html(what));
        }
        out.push_str("</div>");
        out
    }
}

impl Shape {
    fn draw(&self, out: &mut String, at: impl Fn(f64) -> f64) {
        let line = |class: &str, from: f64, to: f64| {
            format!(
                "<line class=\"{class}\" x1=\"{from:.2}%\" x2=\"{to:.2}%\" y1=\"50%\" y2=\"50%\"/>"
            )
        };
        let circle = |class: &str, value: f64| {
            format!("<circle class=\"{class}\" cx=\"{:.2}%\" cy=\"50%\" r=\"4.5\"/>", at(value))
        };
        out.push_str(&match *self {
            Self::Lead(to) => line("lead", 0.0, at(to)),
            Self::Span(from, to) => line("span", at(from), at(to)),
            Self::Whisker(from, to) => line("whisker", at(from), at(to)),
            Self::Dot(value) => circle("dot", value),
            Self::Ring(value) => circle("ring", value),
            Self::Tick(value) => {
                let x = at(value);
                format!("<line class=\"tick\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"25%\" y2=\"75%\"/>")
            }
            // A nested `<svg>`, since a path cannot use percentages.
            Self::Diamond(value) => format!(
                "<svg class=\"diamond\" x=\"{:.2}%\" y=\"50%\"><path d=\"M0-5.5L5.5 0 0 5.5-5.5 0Z\"/></svg>",
                at(value)
            ),
            Self::Bar(from, to, kind) => format!(
                "<rect class=\"bar b{kind}\" x=\"{:.2}%\" width=\"{:.2}%\" y=\"25%\" height=\"50%\"/>",
                at(from),
                at(to) - at(from)
            ),
        });
    }
}

/// Lines over a common pair of axes.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) label: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Reference line: points in base units, and its label.
    pub(crate) reference: Option<(Vec<(f64, f64)>, String)>,
    pub(crate) series: Vec<Series>,
}

/// An axis of a [`Plot`].
#[derive(Debug)]
pub(crate) struct Axis {
    pub(crate) title: String,
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    /// Values that are labelled; if empty, the ticks of the scale.
    pub(crate) ticks: Vec<f64>,
}

/// A line of a [`Plot`].
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) technique: usize,
    /// Label at the end of the line.
    pub(crate) label: String,
    pub(crate) points: Vec<Point>,
}

/// Point of a line, in base units.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) size: usize,
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Interval of `y`.
    pub(crate) interval: Option<Interval>,
    pub(crate) tip: String,
}

/// Minimum distance of the labels at line ends, in pixels.
const LABEL_HEIGHT: f64 = 15.0;
/// Minimum length of a panel's axis when panels are side by side, in pixels.
const TRACK_WIDTH: f64 = 150.0;
/// Minimum width in pixels of a plot with labels beside it.
const PLOT_WIDTH: f64 = 390.0;
/// Minimum width of a plot on a phone, in pixels.
const PHONE_WIDTH: f64 = 260.0;

/// Returns the labels of an axis: position in percent of its length, and text.
fn labels(ticks: &[f64], unit: Unit, at: impl Fn(f64) -> f64) -> Vec<(f64, String)> {
    ticks.iter().map(|tick| (at(*tick), plain(tick / unit.factor))).collect()
}

/// Returns which labels fit along an axis of `width` pixels, starting with the first: those that
/// are not too close to the previous one.
fn with_room(labels: &[(f64, String)], width: f64) -> Vec<bool> {
    const DIGIT: f64 = 7.0;
    const GAP: f64 = 7.0;
    // Pixels by which the last label may exceed the axis.
    const BEYOND: f64 = 8.0;
    let mut before = f64::NEG_INFINITY;
    let mut has_room = |(at, text): &(f64, String)| {
        let half = DIGIT * text.chars().count() as f64 / 2.0;
        let middle = (at / 100.0 * width).min(width + BEYOND - half);
        let has_room = middle - half >= before + GAP;
        if has_room {
            before = middle + half;
        }
        has_room
    };
    labels.iter().map(&mut has_room).collect()
}

impl Axis {
    pub(crate) fn new(title: &str, scale: Scale, unit: Unit) -> Self {
        Self { title: title.to_owned(), scale, unit, ticks: Vec::new() }
    }

    /// Creates an axis without a unit, with a label at each of `values`.
    pub(crate) fn counting(
        title: &str,
        scale: Scale,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self { ticks: values.into_iter().collect(), ..Self::new(title, scale, Unit::NONE) }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.ticks.is_empty() { self.scale.ticks() } else { self.ticks.clone() }
    }

    fn titled(&self) -> String {
        if self.unit.name.is_empty() {
            self.title.clone()
        } else {
            format!("{}, {}", self.title, self.unit.name)
        }
    }
}

/// Draws a line through the points of all rows with the same key, from left to right. `name` returns
/// the technique of a line and its label.
pub(crate) fn lines<R, K: PartialEq>(
    rows: &[R],
    key: impl Fn(&R) -> K,
    name: impl Fn(&K) -> (usize, String),
    point: impl Fn(&R) -> Point,
) -> Vec<Series> {
    let line = |of: K| {
        let mine = rows.iter().filter(|row| key(row) == of);
        let mut points: Vec<Point> = mine.map(&point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let (technique, label) = name(&of);
        Series { technique, label, points }
    };
    distinct(rows, &key).into_iter().map(line).collect()
}

impl Plot {
    pub(crate) fn draw(&self, techniques: &Techniques) -> String {
        let height = (LABEL_HEIGHT * (self.series.len() + 1) as f64).max(320.0);
        let x = |value: f64| 100.0 * self.x.scale.position(value);
        let y = |value: f64| 100.0 - 100.0 * self.y.scale.position(value);
        let mut out = String::new();
        out += &format!(
            "<div class=\"plot\" role=\"group\" tabindex=\"0\" aria-label=\"{}\">\
             <div class=\"y-title\">{}</div><svg style=\"height:{height}px\">",
            html(&self.label),
            html(&self.y.titled())
        );
        for tick in self.y.ticks() {
            let (at, text) = (y(tick), plain(tick / self.y.unit.factor));
            out += &format!(
                "<line class=\"g\" x1=\"0\" x2=\"100%\" y1=\"{at:.2}%\" y2=\"{at:.2}%\"/>\
                 <text class=\"ty\" x=\"0\" y=\"{at:.2}%\" dx=\"-8\" dy=\"4\">{text}</text>"
            );
        }
        let mut labels = labels(&self.x.ticks(), self.x.unit, x);
        let mut has_room = with_room(&labels, PLOT_WIDTH).into_iter();
        labels.retain(|_| has_room.next().unwrap_or(false));
        for ((at, text), on_phone) in labels.iter().zip(with_room(&labels, PHONE_WIDTH)) {
            let tight = if on_phone { "" } else { " tight" };
            out += &format!(
                "<text class=\"tx{tight}\" x=\"{at:.2}%\" y=\"100%\" dy=\"20\">{text}</text>"
            );
        }
        if let Some((points, what)) = &self.reference {
            for pair in points.windows(2) {
                out += &format!(
                    "<line class=\"ref\" x1=\"{:.2}%\" y1=\"{:.2}%\" x2=\"{:.2}%\" y2=\"{:.2}%\"/>",
                    x(pair[0].0),
                    y(pair[0].1),
                    x(pair[1].0),
                    y(pair[1].1)
                );
            }
            if let Some(&(last_x, last_y)) = points.last() {
                // On the side with more room.
                let side = if x(last_x) < 50.0 {
                    "dx=\"8\" style=\"text-anchor:start\""
                } else {
                    "dx=\"-6\""
                };
                out += &format!(
                    "<text class=\"ref\" x=\"{:.2}%\" y=\"{:.2}%\" {side} dy=\"-6\">{}</text>",
                    x(last_x),
                    y(last_y),
                    html(what)
                );
            }
        }
        let dashes = dashes(&self.series, techniques);
        let labels = spread(&self.series, |value| y(value) / 100.0 * height, height);
        for ((series, dash), label) in self.series.iter().zip(&dashes).zip(labels) {
            let technique = techniques.get(series.technique);
            out += &format!(
                "<g class=\"series c{} d{dash}\" data-t=\"{}\">",
                technique.colour, series.technique
            );
            for pair in series.points.windows(2) {
                out += &format!(
                    "<line data-s=\"{} {}\" x1=\"{:.2}%\" y1=\"{:.2}%\" x2=\"{:.2}%\" y2=\"{:.2}%\"/>",
                    pair[0].size,
                    pair[1].size,
                    x(pair[0].x),
                    y(pair[0].y),
                    x(pair[1].x),
                    y(pair[1].y)
                );
            }
            for point in &series.points {
                let at = x(point.x);
                out += &format!(
                    "<g data-s=\"{}\" data-mark><title>{}</title>",
                    point.size,
                    html(&point.tip)
                );
                if let Some(interval) = point.interval {
                    out += &format!(
                        "<line class=\"whisker\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"{:.2}%\" y2=\"{:.2}%\"/>",
                        y(interval.low()),
                        y(interval.high())
                    );
                }
                out += &format!(
                    "<circle class=\"dot\" cx=\"{at:.2}%\" cy=\"{:.2}%\" r=\"3.5\"/></g>",
                    y(point.y)
                );
            }
            if let Some(last) = series.points.last() {
                let (end_x, end_y) = (x(last.x), y(last.y));
                // Connects the line's end with its label.
                out += &format!(
                    "<svg class=\"end\" x=\"{end_x:.2}%\" y=\"0\"><line class=\"link\" x1=\"6\" y1=\"{:.1}\" x2=\"16\" y2=\"{label:.1}\"/>\
                     <text x=\"20\" y=\"{label:.1}\" dy=\"4\">{}</text></svg>",
                    end_y / 100.0 * height,
                    html(&series.label)
                );
            }
            out.push_str("</g>");
        }
        out += &format!(
            "</svg><div class=\"x-title\">{}</div><ul class=\"legend\">",
            html(&self.x.titled())
        );
        if let Some((_, what)) = &self.reference {
            out += &format!(
                "<li><svg aria-hidden=\"true\"><line class=\"ref\" x1=\"0\" x2=\"26\" y1=\"6\" y2=\"6\"/></svg>{}</li>",
                html(what)
            );
        }
        for (series, dash) in self.series.iter().zip(&dashes) {
            let technique = techniques.get(series.technique);
            out += &format!(
                "<li data-t=\"{}\"><svg class=\"series c{} d{dash}\" aria-hidden=\"true\"><line x1=\"0\" x2=\"26\" y1=\"6\" y2=\"6\"/></svg>{}</li>",
                series.technique,
                technique.colour,
                html(&series.label)
            );
        }
        out.push_str("</ul></div>");
        out
    }
}

/// Returns the dash pattern of each line, one of five, which distinguishes lines of the same
/// colour.
fn dashes(series: &[Series], techniques: &Techniques) -> Vec<usize> {
    let mut drawn = [0; 10];
    let dash = |series: &Series| {
        let same = &mut drawn[techniques.get(series.technique).colour];
        *same += 1;
        (*same - 1) % 5
    };
    series.iter().map(dash).collect()
}

/// Returns the positions of the lines' labels, in pixels from the top: at the lines' ends, or as
/// near as other labels allow.
fn spread(series: &[Series], pixels: impl Fn(f64) -> f64, height: f64) -> Vec<f64> {
    let wanted = |series: &Series| series.points.last().map_or(0.0, |point| pixels(point.y));
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_by(|&a, &b| wanted(&series[a]).total_cmp(&wanted(&series[b])));
    let mut placed = vec![0.0; series.len()];
    let mut above = f64::NEG_INFINITY;
    for &index in &order {
        placed[index] = wanted(&series[index]).max(above + LABEL_HEIGHT);
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
    fn crowded_axis_labels_are_omitted() {
        let labels = |texts: &[(f64, &str)]| {
            texts.iter().map(|(at, text)| (*at, (*text).to_owned())).collect::<Vec<_>>()
        };
        let far = labels(&[(0.0, "0"), (50.0, "5"), (100.0, "10")]);
        assert_eq!(with_room(&far, 150.0), [true; 3]);
        let near = labels(&[(0.0, "1"), (60.0, "8000"), (62.0, "10000"), (100.0, "1000000")]);
        assert_eq!(with_room(&near, 390.0), [true, true, false, true]);
        assert_eq!(with_room(&near, 100.0), [true, true, false, false]);
        assert_eq!(with_room(&[], 100.0), [false; 0]);
    }

    #[test]
    fn line_labels_never_overlap_and_stay_inside() {
        let end = |y| Series {
            technique: 0,
            label: String::new(),
            points: vec![Point { size: 64, x: 0.0, y, interval: None, tip: String::new() }],
        };
        for ends in [vec![100.0, 101.0, 99.0], vec![319.0; 20], vec![0.0, 320.0], vec![]] {
            let series: Vec<Series> = ends.into_iter().map(end).collect();
            let mut placed = spread(&series, |y| y, 320.0);
            assert!(placed.iter().all(|at| (0.0..=320.0).contains(at)), "{placed:?}");
            placed.sort_by(f64::total_cmp);
            let apart = |pair: &[f64]| pair[1] - pair[0] >= LABEL_HEIGHT - 1e-9;
            assert!(placed.windows(2).all(apart), "{placed:?}");
        }
    }
}

//! Table of techniques in containers of several runtimes, side by side.

use dray_results::{Interval, ResultRow, Results};

use super::cell::{add_columns, head, kilo};
use crate::distinct::distinct;
use dray_text::{fit, wrapped};

/// Largest relative difference between runtimes that needs no mention.
const ALIKE: f64 = 0.05;

/// One technique in containers of one runtime.
struct Cell {
    technique: String,
    /// Frame size or MTU, as text.
    size: String,
    unit: &'static str,
    runtime: String,
    /// Rate; `None` if the case was skipped.
    rate: Option<Rate>,
}

struct Rate {
    /// Mean rate, in the cell's unit.
    mean: f64,
    /// Half the 95 % interval over the trials, if there were several.
    half: Option<f64>,
    text: String,
}

impl Cell {
    fn line(&self) -> (&str, &str, &'static str) {
        (&self.technique, &self.size, self.unit)
    }
}

/// Returns true if some technique was measured in containers of more than one runtime.
pub(super) fn are_compared(results: &Results) -> bool {
    let cells = cells(results);
    let same = |cell: &&Cell| {
        cells.iter().any(|other| other.line() == cell.line() && other.runtime != cell.runtime)
    };
    cells.iter().any(|cell| same(&cell))
}

/// Formats a row for each technique and size, and a column for each runtime: the rate with its
/// interval over the trials, and how far the slowest is behind the fastest.
pub(super) fn table(results: &Results) -> String {
    let cells = cells(results);
    let runtimes = distinct(&cells, |cell| cell.runtime.clone());
    let mut lines = head("technique|size|unit", "||");
    for runtime in &runtimes {
        add_columns(&mut lines, &[(runtime.as_str(), ""), ("±", "%")]);
    }
    add_columns(&mut lines, &[("apart", "%"), ("±", "%")]);
    let (mut apart, mut compared) = (0, 0);
    for key in distinct(&cells, |cell| {
        let (technique, size, unit) = cell.line();
        (technique.to_owned(), size.to_owned(), unit)
    }) {
        let (technique, size, unit) = (&*key.0, &*key.1, key.2);
        let mine: Vec<&Cell> =
            cells.iter().filter(|cell| cell.line() == (technique, size, unit)).collect();
        let mut line = vec![technique.to_owned(), size.to_owned(), unit.to_owned()];
        for runtime in &runtimes {
            let cell = mine.iter().find(|cell| cell.runtime == *runtime);
            line.extend(match cell.map(|cell| &cell.rate) {
                Some(Some(rate)) => [rate.text.clone(), percent(rate.relative_half())],
                Some(None) => ["skipped".to_owned(), String::new()],
                None => [const { String::new() }; 2],
            });
        }
        match difference(mine.iter().filter_map(|cell| cell.rate.as_ref())) {
            Some((share, error)) => {
                compared += 1;
                apart += usize::from(share > ALIKE);
                line.extend([percent(Some(share)), percent(error)]);
            }
            None => line.extend(["-", "-"].map(str::to_owned)),
        }
        lines.push(line);
    }
    let limit = 100.0 * ALIKE;
    fit(&lines, 3, 3, &[2])
        + &wrapped(&format!(
            "apart: how far the slowest runtime is behind the fastest; more than {limit} % in \
             {apart} of {compared} rows. ±: half the 95 % interval, over the trials; the \
             runtimes' trials alternate."
        ))
}

/// Returns how far the lowest rate is behind the highest, as a share of the highest, and half the
/// interval of that share; `None` for fewer than two rates.
fn difference<'r>(rates: impl Iterator<Item = &'r Rate>) -> Option<(f64, Option<f64>)> {
    let mut rates: Vec<_> = rates.filter(|rate| rate.mean > 0.0).collect();
    rates.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let [lowest, .., highest] = rates[..] else { return None };
    let ratio = lowest.mean / highest.mean;
    let errors = lowest.relative_half().zip(highest.relative_half());
    Some((1.0 - ratio, errors.map(|(low, high)| ratio * low.hypot(high))))
}

impl Rate {
    /// Returns half the interval as a share of the mean.
    fn relative_half(&self) -> Option<f64> {
        self.half.filter(|_| self.mean > 0.0).map(|half| half / self.mean)
    }
}

fn half(interval: Option<Interval>, trials: usize) -> Option<f64> {
    interval.filter(|_| trials > 1).map(|interval| interval.half)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1}", 100.0 * share))
}

fn cells(results: &Results) -> Vec<Cell> {
    let frames = results.results.iter().filter(|row| row.isolation().is_none());
    let frames = frames.map(|row: &ResultRow| Cell {
        technique: row.technique.clone(),
        size: format!("{} B", row.frame_size),
        unit: "kpps",
        runtime: row.runtime.clone(),
        rate: row.measured().map(|measured| Rate {
            mean: measured.received_pps,
            half: half(measured.interval(), measured.trials),
            text: format!("{}{}", kilo(measured.received_pps), measured.mark()),
        }),
    });
    let streams = results.streams.iter().map(|row| Cell {
        technique: row.technique.clone(),
        size: format!("MTU {}", row.mtu),
        unit: "Gb/s",
        runtime: row.runtime.clone(),
        rate: row.measured().map(|measured| Rate {
            mean: measured.goodput_bps,
            half: half(measured.interval(), measured.trials),
            text: format!("{:.2}", measured.goodput_bps / 1e9),
        }),
    });
    frames.chain(streams).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(mean: f64, half: Option<f64>) -> Rate {
        Rate { mean, half, text: String::new() }
    }

    #[test]
    fn runtime_difference_is_slowest_against_fastest() {
        let rates = [rate(98.0, Some(0.98)), rate(100.0, Some(0.0)), rate(95.0, Some(0.95))];
        let (share, error) = difference(rates.iter()).unwrap();
        assert!((share - 0.05).abs() < 1e-12, "{share}");
        assert!((error.unwrap() - 0.0095).abs() < 1e-12, "{error:?}");
        // A single trial says nothing about its own error.
        let (_, error) = difference([rate(1.0, None), rate(2.0, Some(0.1))].iter()).unwrap();
        assert_eq!(error, None);
        assert!(difference([rate(1.0, None), rate(0.0, None)].iter()).is_none());
    }
}

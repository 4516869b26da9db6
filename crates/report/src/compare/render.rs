//! A comparison as a table.

use std::fmt::Write;

use dray_measure::table::align;

use super::{Comparison, Figures, Goodput, StreamChange, Verdict};
use crate::number::{GIGABITS, change, rate_unit};

impl Comparison {
    /// For people, at most 100 columns wide unless names are long.
    pub fn render(&self) -> String {
        let mut text = format!("A: {}\nB: {}\n", self.a, self.b);
        for warning in &self.warnings {
            writeln!(text, "Beware: {warning}.").ok();
        }
        text.push('\n');
        let mut cells =
            vec![["", "A", "±", "B", "±", "", "change", ""].map(str::to_owned).to_vec()];
        for row in &self.rows {
            let unit = rate_unit(row.a.received_pps.max(row.b.received_pps));
            let half = |figures: &Figures| {
                figures.half_interval_pps.map_or("-".into(), |half| unit.half(half))
            };
            cells.push(vec![
                row.row.clone(),
                unit.of(row.a.received_pps),
                half(&row.a),
                unit.of(row.b.received_pps),
                half(&row.b),
                unit.name.to_owned(),
                row.ratio.map_or("-".to_owned(), change),
                row.verdict.in_words().to_owned(),
            ]);
        }
        for StreamChange { row, a, b, ratio, verdict, .. } in &self.streams {
            let half =
                |it: &Goodput| it.half_interval_bps.map_or("-".into(), |half| GIGABITS.half(half));
            cells.push(vec![
                row.clone(),
                GIGABITS.of(a.goodput_bps),
                half(a),
                GIGABITS.of(b.goodput_bps),
                half(b),
                GIGABITS.name.to_owned(),
                ratio.map_or("-".to_owned(), change),
                verdict.in_words().to_owned(),
            ]);
        }
        text.push_str(&align(&cells, 1, 1));
        let count = |verdict| self.count(verdict);
        writeln!(
            text,
            "B is faster in {}, slower in {}; in {} the 95 % intervals overlap; {} not judged.",
            count(Verdict::Faster),
            count(Verdict::Slower),
            count(Verdict::NoDifference),
            count(Verdict::NotJudged)
        )
        .ok();
        let frames = self.rows.iter().map(|it| (&it.row, &it.remarks));
        for (row, remarks) in frames.chain(self.streams.iter().map(|it| (&it.row, &it.remarks))) {
            for remark in remarks {
                writeln!(text, "{row}: {remark}.").ok();
            }
        }
        for (name, rows) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !rows.is_empty() {
                writeln!(text, "Only in {name}: {}.", rows.join(", ")).ok();
            }
        }
        text
    }
}

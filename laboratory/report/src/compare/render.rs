//! Renders a comparison as a table.

use std::fmt::Write;

use dray_text::align;

use super::{Change, Comparison, Verdict};
use crate::number::{change, spread};

impl Comparison {
    /// Renders for people, as wide as their terminal unless names are long.
    pub fn render(&self) -> String {
        let mut text = format!("A: {}\nB: {}\n", self.a, self.b);
        for warning in &self.warnings {
            writeln!(text, "Warning: {warning}.").ok();
        }
        text.push('\n');
        let mut cells =
            vec![["", "A", "± %", "B", "± %", "", "change", ""].map(str::to_owned).to_vec()];
        for row in &self.rows {
            let unit = row.shown_in();
            cells.push(vec![
                row.row.clone(),
                unit.of(row.a.rate),
                spread(row.a.interval()),
                unit.of(row.b.rate),
                spread(row.b.interval()),
                unit.name.to_owned(),
                row.ratio.map_or("-".to_owned(), change),
                row.verdict.in_words().to_owned(),
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
        for Change { row, remarks, .. } in &self.rows {
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

//! Renders a comparison as a table.

use dray_text::align;

use super::{Change, Comparison, Judgement};
use crate::number::{change, spread};

impl Comparison {
    /// Renders for people, as wide as their terminal unless names are long.
    pub fn render(&self) -> String {
        let mut text = format!("A: {}\nB: {}\n", self.a, self.b);
        for warning in &self.warnings {
            text += &format!("Warning: {warning}.\n");
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
        text += &format!(
            "B is faster in {}, slower in {}; in {} the 95 % intervals overlap; {} not judged.\n",
            count(Judgement::Faster),
            count(Judgement::Slower),
            count(Judgement::NoDifference),
            count(Judgement::NotJudged)
        );
        for Change { row, remarks, .. } in &self.rows {
            for remark in remarks {
                text += &format!("{row}: {remark}.\n");
            }
        }
        for (name, rows) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !rows.is_empty() {
                text += &format!("Only in {name}: {}.\n", rows.join(", "));
            }
        }
        text
    }
}

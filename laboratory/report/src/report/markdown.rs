//! A report as Markdown: the summary, and every chart's table.

use crate::escape::markdown as escape;
use crate::figure::Table;
use crate::papers::Beside;
use crate::report::Report;

impl Report {
    /// Renders the summary and all tables as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# How fast containers talk to each other\n");
        for host in &self.hosts {
            text += &format!("\n## {}\n\n", escape(&host.name));
            for caveat in &host.caveats {
                text += &format!("> {}\n\n", escape(caveat));
            }
            if !host.answers.is_empty() {
                text.push_str(
                    "| task | best technique | result | confidence |\n|---|---|---|---|\n",
                );
            }
            for answer in &host.answers {
                text += &format!(
                    "| {} ({}) | {} | {} | {} |\n",
                    answer.question,
                    escape(&answer.condition),
                    escape(&answer.best),
                    escape(&answer.figure),
                    escape(&answer.verdict)
                );
            }
            if !host.papers.is_empty() {
                text.push_str(
                    "\n### The papers beside this machine\n\n| experiment | paper | here |\n\
                     |---|---|---|\n",
                );
            }
            for Beside { experiment, paper, here } in &host.papers {
                let here: Vec<String> = here.iter().map(|line| escape(line)).collect();
                text += &format!(
                    "| {} | {} | {} |\n",
                    escape(experiment),
                    escape(paper),
                    here.join("; ")
                );
            }
            for section in &host.sections {
                text += &format!("\n### {}\n\n", escape(&section.experiment));
                if !section.about.is_empty() {
                    text += &format!("{}.\n\n", escape(&section.about));
                }
                text +=
                    &format!("{}; started {}.\n", escape(&section.settings), escape(&section.time));
                for figure in &section.figures {
                    text += &format!(
                        "\n#### {}\n\n{}\n\n",
                        escape(&figure.title),
                        escape(&figure.reading)
                    );
                    table(&mut text, &figure.table);
                    for note in &figure.notes {
                        text += &format!("\n{}\n", escape(note));
                    }
                }
                if !section.skipped.is_empty() {
                    text.push_str("\nSkipped:\n\n");
                }
                for skipped in &section.skipped {
                    text += &format!("* {}\n", escape(skipped));
                }
            }
            text.push_str("\n### The host\n\n| | |\n|---|---|\n");
            for (name, fact) in &host.facts {
                text += &format!("| {name} | {} |\n", escape(fact));
            }
        }
        text
    }
}

fn table(text: &mut String, table: &Table) {
    for column in &table.columns {
        let unit =
            if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
        *text += &format!("| {}{unit} ", column.title);
    }
    text.push_str("|\n");
    for column in &table.columns {
        text.push_str(if column.is_number { "|--:" } else { "|---" });
    }
    text.push_str("|\n");
    for row in &table.rows {
        for cell in &row.cells {
            *text += &format!("| {} ", escape(cell));
        }
        text.push_str("|\n");
    }
}

#[cfg(test)]
mod tests {
    use crate::report::Report;
    use crate::sample;

    #[test]
    fn markdown_escapes_names_in_tables() {
        let hostile = sample::row("a|b\\n<script>/udp", 64);
        let text = Report::new(vec![sample::run(&sample::results(&[hostile]))]).markdown();
        assert!(!text.contains("<script>"), "{text}");
        let table: Vec<&str> =
            text.lines().filter(|line| line.starts_with("| technique")).collect();
        let columns = table[0].matches('|').count();
        let row = text.lines().find(|line| line.starts_with("| a\\|b")).expect("the row");
        assert_eq!(row.replace("\\|", "").matches('|').count(), columns, "{text}");
    }
}

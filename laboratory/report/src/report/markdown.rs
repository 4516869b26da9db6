//! A report as Markdown: the summary, and every chart's table.

use std::fmt::Write;

use crate::escape::markdown as escape;
use crate::figure::Table;
use crate::papers::Beside;
use crate::report::Report;
impl Report {
    /// Renders the summary and all tables as Markdown.
    pub fn markdown(&self) -> String {
        render(self)
    }
}

fn render(report: &Report) -> String {
    let mut text = String::from("# How fast containers talk to each other\n");
    for host in &report.hosts {
        writeln!(text, "\n## {}\n", escape(&host.name)).ok();
        for caveat in &host.caveats {
            writeln!(text, "> {}\n", escape(caveat)).ok();
        }
        if !host.answers.is_empty() {
            text.push_str("| task | best technique | result | confidence |\n|---|---|---|---|\n");
        }
        for answer in &host.answers {
            writeln!(
                text,
                "| {} ({}) | {} | {} | {} |",
                answer.question,
                escape(&answer.condition),
                escape(&answer.best),
                escape(&answer.figure),
                escape(&answer.verdict)
            )
            .ok();
        }
        if !host.papers.is_empty() {
            text.push_str(
                "\n### The papers beside this machine\n\n| experiment | paper | here |\n\
                 |---|---|---|\n",
            );
        }
        for Beside { experiment, paper, here } in &host.papers {
            let here: Vec<String> = here.iter().map(|line| escape(line)).collect();
            writeln!(text, "| {} | {} | {} |", escape(experiment), escape(paper), here.join("; "))
                .ok();
        }
        for section in &host.sections {
            writeln!(text, "\n### {}\n", escape(&section.experiment)).ok();
            if !section.about.is_empty() {
                writeln!(text, "{}.\n", escape(&section.about)).ok();
            }
            writeln!(text, "{}; started {}.", escape(&section.settings), escape(&section.time))
                .ok();
            for figure in &section.figures {
                writeln!(text, "\n#### {}\n\n{}\n", escape(&figure.title), escape(&figure.reading))
                    .ok();
                table(&mut text, &figure.table);
                for note in &figure.notes {
                    writeln!(text, "\n{}", escape(note)).ok();
                }
            }
            if !section.skipped.is_empty() {
                text.push_str("\nSkipped:\n\n");
            }
            for skipped in &section.skipped {
                writeln!(text, "* {}", escape(skipped)).ok();
            }
        }
        text.push_str("\n### The host\n\n| | |\n|---|---|\n");
        for (name, fact) in &host.facts {
            writeln!(text, "| {name} | {} |", escape(fact)).ok();
        }
    }
    text
}

fn table(text: &mut String, table: &Table) {
    for column in &table.columns {
        let unit =
            if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
        write!(text, "| {}{unit} ", column.title).ok();
    }
    text.push_str("|\n");
    for column in &table.columns {
        text.push_str(if column.is_number { "|--:" } else { "|---" });
    }
    text.push_str("|\n");
    for row in &table.rows {
        for cell in &row.cells {
            write!(text, "| {} ", escape(cell)).ok();
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

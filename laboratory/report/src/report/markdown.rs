//! A report as Markdown: the summary, and every chart's table.

use minijinja::context;

use crate::report::Report;
use crate::template;

impl Report {
    /// Renders the summary and all tables as Markdown.
    pub fn markdown(&self) -> String {
        template::render("report.md", context! { hosts => self.hosts })
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

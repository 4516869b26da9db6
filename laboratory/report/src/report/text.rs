//! A report as text for a terminal: which technique suits which purpose, and a row for each link.

use dray_text::{align, wrapped};

use crate::number::{GIGABITS, digits, percent, rate_unit};
use crate::overview::{Overview, gigabits};
use crate::report::{Host, Report};

impl Report {
    /// Renders a summary for a terminal, as wide as it, at least 80 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for host in &self.hosts {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &format!("{}\n", host.name);
            answers(&mut text, host);
            if let Some(overview) = &host.overview {
                links(&mut text, overview);
            }
            for caveat in &host.caveats {
                text.push_str(&wrapped(caveat));
            }
        }
        text
    }
}

/// Largest number of links that are listed; the others are counted.
const LISTED: usize = 20;

/// Writes the best technique for each question, and below it the one next to it.
fn answers(text: &mut String, host: &Host) {
    if host.answers.is_empty() {
        return;
    }
    let mut rows = vec![["best technique for", "", "figure"].map(str::to_owned).to_vec()];
    for answer in &host.answers {
        rows.push(vec![answer.question.to_lowercase(), answer.best.clone(), answer.figure.clone()]);
        let Some(next) = &answer.next else { continue };
        let certainty = match next.is_real {
            Some(true) => "",
            Some(false) => ", not real",
            None => ", perhaps not real",
        };
        let lead = format!("lead {}{certainty}", next.lead);
        rows.push(vec!["  next".to_owned(), next.technique.clone(), lead]);
    }
    text.push('\n');
    text.push_str(&align(&rows, 1, 3));
    text.push_str(&wrapped(
        "lead: of the best technique over the next; not real: the 95 % intervals of the two overlap; \
         perhaps not real: there is no interval; fewest cores: rate for each busy core.",
    ));
}

/// Writes one line for each link.
fn links(text: &mut String, overview: &Overview) {
    let [small, large] = overview.sizes;
    let fastest = overview.rows.first().map_or(0.0, |row| row.small.pps);
    let unit = rate_unit(fastest);
    let mut rows = vec![
        [
            "link".to_owned(),
            "endpoint".to_owned(),
            format!("{small} B"),
            "±".to_owned(),
            "loss".to_owned(),
            "cycles".to_owned(),
            format!("{large} B"),
            "stream".to_owned(),
        ]
        .to_vec(),
        ["", "", unit.name, "%", "%", "/frame", GIGABITS.name, GIGABITS.name]
            .map(str::to_owned)
            .to_vec(),
    ];
    for row in overview.rows.iter().take(LISTED) {
        let half = row.small.interval.map(|interval| 100.0 * interval.half / row.small.pps);
        rows.push(vec![
            row.link.clone(),
            row.endpoint.clone(),
            unit.of(row.small.pps) + if row.is_disturbed { "~" } else { "" },
            half.map_or("-".to_owned(), |percent| format!("{percent:.1}")),
            percent(row.loss_ratio),
            row.cycles.map_or("-".to_owned(), digits),
            gigabits(row.large),
            gigabits(row.stream),
        ]);
    }
    text.push('\n');
    text.push_str(&align(&rows, 2, 2));
    let mut notes = format!(
        "Each link with its fastest endpoint at {small} B; {large} B and stream (one TCP stream): the \
         fastest of its endpoints."
    );
    if overview.rows.len() > LISTED {
        notes += &format!(" {} slower links are not listed.", overview.rows.len() - LISTED);
    }
    text.push_str(&wrapped(&notes));
}

#[cfg(test)]
mod tests {
    use crate::report::Report;
    use crate::sample::{self, row};

    #[test]
    fn summary_names_winner_runner_up_and_certainty() {
        let rows = [
            row("veth/udp", 64).samples(&[10e5, 10.1e5]),
            row("switch/patch", 64).samples(&[30e6, 30.1e6, 30.2e6]),
            row("switch/patch", 1500).samples(&[15e6, 15.1e6, 15.2e6]),
        ];
        let text = Report::new(vec![sample::run(&sample::results(&rows))]).text();
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found
                .unwrap_or_else(|| panic!("{start}: {text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(line("small frames")[2..5], ["switch/patch", "30.1", "Mpps"], "{text}");
        assert_eq!(line("  next"), ["next", "veth/udp", "lead", "30.0x"], "{text}");
        assert_eq!(line("unmodified programs")[2], "veth/udp", "{text}");
        assert_eq!(line("switch  ")[..3], ["switch", "virtio", "30.1"], "{text}");
        // The first table fits every terminal.
        assert!(text.lines().take(9).all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= dray_text::width()), "{text}");
    }

    #[test]
    fn links_beyond_twenty_are_counted() {
        let rows: Vec<_> = (0..23).map(|number| row(&format!("link{number}/udp"), 64)).collect();
        let text = Report::new(vec![sample::run(&sample::results(&rows))]).text();
        assert_eq!(text.lines().filter(|line| line.starts_with("link")).count(), 21, "{text}");
        assert!(text.contains("3 slower links are not listed"), "{text}");
    }
}

//! Renders findings as text for a terminal or for sharing.

use std::fmt::Write;

use dray_text::width;

use super::finding::{Finding, State};

/// Maximum width of the item column; longer items push their details to the right.
const ITEM_MAX: usize = 22;
/// Column at which an item starts, after its mark.
const INDENT: usize = 6;

/// Renders findings in order, by group: a mark, the item and its detail on one line, and any advice
/// below.
pub fn render(findings: &[Finding]) -> String {
    let longest = findings.iter().map(|finding| finding.item.chars().count()).max();
    let column = INDENT + longest.unwrap_or(0).min(ITEM_MAX) + 2;
    let mut text = String::new();
    let mut group = "";
    for finding in findings {
        if finding.group != group {
            group = finding.group;
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{group}");
        }
        let head = format!("  {}  {}", mark(finding.state), finding.item);
        push_wrapped(&mut text, &head, column, &finding.detail);
        if let Some(advice) = &finding.advice {
            push_wrapped(&mut text, "", INDENT + 2, advice);
        }
    }
    text
}

fn mark(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Missing => "--",
        State::Warning => "!!",
        State::Unknown => "??",
    }
}

/// Writes `head`, then `words` from `column` on, wrapped to as many lines as needed.
fn push_wrapped(text: &mut String, head: &str, column: usize, words: &str) {
    let mut line: String = head.chars().take(width() - 2).collect();
    // A head that reaches into the column is followed by its own gap.
    let mut used = (line.chars().count() + 2).max(column);
    if words.is_empty() {
        let _ = writeln!(text, "{line}");
        return;
    }
    line.extend(std::iter::repeat_n(' ', used - line.chars().count()));
    let mut at_start = true;
    for word in words.split_whitespace().flat_map(|word| pieces(word, width() - column)) {
        let gap = usize::from(!at_start);
        let len = word.chars().count();
        if used + gap + len > width() {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(column);
            used = column;
        } else if gap > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(&word);
        used += len;
        at_start = false;
    }
    let _ = writeln!(text, "{line}");
}

/// Cuts a word that is wider than a line.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    chars.chunks(width).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_aligned_grouped_and_wrapped() {
        let findings = [
            Finding::new("cpu", "governor", State::Ok, "performance"),
            Finding::new("cpu", "isolated CPUs", State::Missing, "none")
                .advise("other work interrupts polling loops; ".repeat(4).trim_end()),
            Finding::new("links", "veth", State::Unknown, "only root can tell"),
        ];
        let expected = "\
cpu
  ok  governor       performance
  --  isolated CPUs  none
        other work interrupts polling loops; other work interrupts polling loops; other work
        interrupts polling loops; other work interrupts polling loops;

links
  ??  veth           only root can tell
";
        assert_eq!(render(&findings), expected);
        assert_eq!(render(&[]), "");
    }

    #[test]
    fn rendered_lines_fit_the_terminal() {
        for len in [0, 1, 21, 22, 23, 69, 70, 71, 92, 99, 100, 250] {
            let long = "é".repeat(len);
            let spaced = format!("{long} {long} a {long}");
            let findings = [
                Finding::new("g", long.clone(), State::Warning, spaced.clone()).advise(spaced),
                Finding::new("g", "short", State::Warning, long),
            ];
            let text = render(&findings);
            assert!(text.lines().all(|line| line.chars().count() <= width()), "{len}: {text}");
            assert_eq!(text.matches('é').count(), 7 * len + len.min(width() - 2 - INDENT), "{len}");
        }
    }
}

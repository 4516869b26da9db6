//! Text for a terminal: tables and notes that fit its width, and advice in errors; text in markup.
#![forbid(unsafe_code)]

mod as_text;
mod escape;
mod nearest;
mod parse_error;

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

pub use escape::escape_html;
pub use nearest::{advice, hint, nearest};
pub use parse_error::{line_at, parse_error};
use rustix::termios::tcgetwinsize;
#[doc(hidden)]
pub use serde;

/// Returns the width of text in columns: that of the terminal on standard output, from 80 to 100,
/// or 100 if standard output is not a terminal.
pub fn width() -> usize {
    static WIDTH: OnceLock<usize> = OnceLock::new();
    *WIDTH.get_or_init(|| columns(io::stdout()).map_or(MOST, |columns| columns.clamp(LEAST, MOST)))
}

/// Returns the number of columns of a terminal, if it is one and has a size.
pub fn columns(terminal: impl AsFd) -> Option<usize> {
    let columns = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    (columns > 0).then_some(columns)
}

/// Text is at least this wide, however narrow the terminal is.
const LEAST: usize = 80;
/// Text is at most this wide, however wide the terminal is.
const MOST: usize = 100;

/// Wraps a note to the [`width`]; only a word longer than a line exceeds the width.
pub fn wrapped(note: &str) -> String {
    let (mut text, mut column, width) = (String::new(), 0, width());
    for (number, word) in note.split(' ').enumerate() {
        let length = word.chars().count();
        match number {
            0 => {}
            _ if column + 1 + length > width => {
                text.push_str("\n  ");
                column = 2;
            }
            _ => {
                text.push(' ');
                column += 1;
            }
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

/// Returns a number with its noun: `1 port`, `2 ports`.
pub fn count<N: fmt::Display + PartialEq + From<u8> + Copy>(number: N, noun: &str) -> String {
    let end = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{end}")
}

/// Formats cells, whose first two lines are names and units, as tables below each other, none wider
/// than a terminal if possible. Each table repeats the first `front` columns, of which `left` are
/// left-aligned; the other columns are split only between groups, whose sizes `groups` lists and
/// repeats.
pub fn fit(cells: &[Vec<String>], left: usize, front: usize, groups: &[usize]) -> String {
    const HEADERS: usize = 2;
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let table = |range: std::ops::Range<usize>| {
        // A line whose last cell ran on in the previous table has nothing more to show.
        let has_more = |line: &&Vec<String>| range.start == front || line.len() > range.start;
        let part = |line: &Vec<String>| {
            let behind = line.iter().skip(range.start).take(range.len());
            line.iter().take(front).chain(behind).cloned().collect()
        };
        align(&cells.iter().filter(has_more).map(part).collect::<Vec<_>>(), HEADERS, left)
    };
    let is_narrow = |text: &str| text.lines().all(|line| line.chars().count() <= width());
    let end_of = |end: &mut usize, group: &usize| {
        *end += group;
        Some((*end).min(columns))
    };
    let ends = groups.iter().cycle().scan(front, end_of).take(columns.saturating_sub(front));
    let ends: Vec<usize> = ends.collect();
    let (mut tables, mut from) = (Vec::new(), front);
    while from < columns {
        let mut behind = ends.iter().copied().filter(|end| *end > from);
        // A table holds at least one group.
        let least = behind.clone().next().unwrap_or(columns);
        let to = behind.rfind(|&to| is_narrow(&table(from..to))).unwrap_or(least);
        tables.push(table(from..to));
        from = to;
    }
    tables.join("\n")
}

/// Like [`fit`], for a list; empty if there are only names and units.
pub fn list_of(cells: &[Vec<String>], left: usize, front: usize) -> String {
    if cells.len() > 2 { fit(cells, left, front, &[1]) } else { String::new() }
}

/// Formats a table with one line of names above its rows; the first `left` columns are
/// left-aligned.
pub fn table(names: &[&str], rows: impl IntoIterator<Item = Vec<String>>, left: usize) -> String {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let cells: Vec<Vec<String>> = std::iter::once(names).chain(rows).collect();
    align(&cells, 1, left)
}

/// Formats lines of cells as text: the first `left` columns left-aligned, the others right-aligned,
/// and a rule under the first `headers` lines. The last cell of a shorter line runs on over the
/// columns behind it.
pub fn align(cells: &[Vec<String>], headers: usize, left: usize) -> String {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let runs_on = |line: &[String], column| {
        column >= left && column + 1 == line.len() && column + 1 < columns
    };
    let width = |column: usize| {
        let lines = cells.iter().filter(|line| !runs_on(line, column));
        lines.filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, line) in cells.iter().enumerate() {
        let mut out = String::new();
        for (column, cell) in line.iter().enumerate() {
            let gap = if column == 0 { 0 } else { 2 };
            let pad = widths[column].saturating_sub(cell.chars().count());
            let to_the_left = column < left || runs_on(line, column);
            let (before, after) = if to_the_left { (0, pad) } else { (pad, 0) };
            out.push_str(&" ".repeat(gap + before));
            out.push_str(cell);
            out.push_str(&" ".repeat(after));
        }
        text.push_str(out.trim_end());
        text.push('\n');
        if number + 1 == headers {
            let total: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            text.push_str(&"─".repeat(total));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noun_of_one_is_singular() {
        let counts = [0_u64, 1, 2].map(|number| count(number, "port"));
        assert_eq!(counts, ["0 ports", "1 port", "2 ports"]);
    }

    #[test]
    fn wide_table_is_split() {
        let line = |name: &str, cell: &str| {
            std::iter::once(name.to_owned()).chain((0..8).map(|_| cell.to_owned())).collect()
        };
        let cells: Vec<Vec<String>> =
            vec![line("", "twenty-two characters."), line("", "kpps"), line("row", "1")];
        let text = fit(&cells, 1, 1, &[2]);
        assert!(text.lines().all(|line| line.chars().count() <= width()), "{text}");
        // Three columns would fit, but two belong together.
        assert_eq!(text.lines().filter(|line| line.starts_with("row")).count(), 2, "{text}");
        assert_eq!(text.matches("twenty-two").count(), 8);
        assert_eq!(text.matches('─').count() / 2, text.lines().nth(2).unwrap().chars().count());
        let narrow: Vec<_> = cells.iter().map(|line| line[..3].to_vec()).collect();
        assert_eq!(fit(&narrow, 1, 1, &[2]), align(&narrow, 2, 1));
    }

    #[test]
    fn notes_wrap_between_words() {
        let note = "word ".repeat(50);
        let text = wrapped(note.trim());
        assert!(
            text.lines().count() == 3 && text.lines().all(|line| line.len() <= width()),
            "{text}"
        );
        assert_eq!(text.split_whitespace().count(), 50);
        assert_eq!(wrapped("short"), "short\n");
    }
}

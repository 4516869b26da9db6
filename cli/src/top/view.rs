//! Draws the screen. Colours are the terminal's own sixteen, so that its theme applies.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dray_port::Fill;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, TableState, Wrap};

use super::model::{PortRates, Rates, WorkerRates, share};
use super::screen::{History, Screen, Sort, worker_key};
use crate::common::scaled;

/// Smallest terminal on which all columns fit.
const LEAST: (u16, u16) = (80, 12);

/// Titles of the columns that every terminal shows.
pub(super) const PORT_TITLES: [&str; 9] =
    ["port", "state", "rx pps", "rx bit/s", "tx pps", "tx bit/s", "rx ring", "tx ring", "drops/s"];
const WIDTHS: [u16; 9] = [12, 9, 7, 8, 7, 8, 7, 7, 7];
/// Further columns and their widths, each for terminals that have room for it.
const WIDER: [(&str, u16); 3] = [("last minutes", 24), ("drop reasons", 30), ("where", 36)];

/// A ring from this share on is about to be full.
const NEARLY_FULL: f64 = 0.9;

/// Formats the fill of a ring.
pub(super) fn fill(fill: Option<Fill>) -> String {
    fill.map_or("-".to_owned(), |fill| format!("{:.0} %", 100.0 * share(fill)))
}

/// Returns one line about the program.
pub(super) fn headline(rates: &Rates) -> String {
    let Rates { program, version, uptime_s, about, .. } = rates;
    let up = |seconds: f64| humantime::format_duration(Duration::from_secs(seconds as u64));
    let up = uptime_s.map_or(String::new(), |seconds| format!(", up {}", up(seconds)));
    format!("dray {program} {version}{up}; {about}")
}

/// Returns a number in a table; `-` if it is not known.
pub(super) fn or_dash(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), scaled)
}

/// Colours and attributes. Without colours, attributes alone make the difference.
struct Theme {
    colours: bool,
}

impl Theme {
    fn of(&self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn title() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn bad(&self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn state(&self, state: &str) -> Style {
        match state {
            "running" => self.of(Color::Green),
            "failed" => self.bad(),
            _ => self.of(Color::Yellow),
        }
    }
}

pub(super) fn draw(screen: &Screen, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!(
            "This terminal has {} columns and {} lines; dray top needs {} and {}.",
            area.width, area.height, LEAST.0, LEAST.1
        );
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let Some(rates) = &screen.rates else { return };
    let style = Theme { colours: screen.colours };
    let workers = rates.workers.len().min(usize::from(area.height) / 3) as u16;
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(if workers > 0 { workers + 2 } else { 0 }),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [head, silent, of_workers, of_ports, foot] = Layout::vertical(rows).areas(area);
    frame.render_widget(Line::styled(headline(rates), Theme::title()), head);
    if let Some(why) = &screen.silent {
        let text = format!("{why}; waiting for it to come back");
        frame.render_widget(Line::styled(text, style.bad()), silent);
    }
    draw_workers(screen, &rates.workers, frame, of_workers);
    draw_ports(screen, &style, frame, of_ports);
    frame.render_widget(footer(screen), foot);
}

/// Returns a cell with its text at the right.
fn right<'t>(text: impl Into<Line<'t>>) -> Cell<'t> {
    Cell::from(text.into().right_aligned())
}

fn draw_workers(screen: &Screen, workers: &[WorkerRates], frame: &mut Frame<'_>, area: Rect) {
    let names = ["cpu", "busy", "cycles/frame", "frames/batch", "frames/s"];
    let rows = workers.iter().map(|worker| {
        let history = screen.history(&worker_key(worker.cpu));
        Row::new([
            right(worker.cpu.to_string()),
            right(format!("{:.0} %", 100.0 * worker.busy)),
            right(or_dash(worker.cycles_per_frame)),
            right(or_dash(worker.frames_per_batch)),
            right(scaled(worker.frames_per_s)),
            Cell::from(sparkline(history, 24)),
            Cell::from(worker.ports.join(" ")),
        ])
    });
    let widths = [4, 6, 12, 12, 8, 24].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Fill(1)]);
    let header =
        Row::new(names.map(right).into_iter().chain(["", "receives from"].map(Cell::from)));
    let header = header.style(Theme::title().add_modifier(Modifier::UNDERLINED));
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn draw_ports(screen: &Screen, style: &Theme, frame: &mut Frame<'_>, area: Rect) {
    let ports = screen.ports();
    let selected = screen.selected_line(&ports);
    let mut room =
        usize::from(area.width) - usize::from(WIDTHS.iter().sum::<u16>()) - (WIDTHS.len() - 1);
    let mut wider = 0;
    while let Some((_, width)) = WIDER.get(wider)
        && usize::from(*width) < room
    {
        room -= usize::from(*width) + 1;
        wider += 1;
    }
    let rows = ports.iter().map(|port| {
        let mut cells = cells(port, style);
        let reasons = || port.drops.iter().map(|(why, rate)| format!("{why} {}", scaled(*rate)));
        let more = [
            Cell::from(sparkline(screen.history(&port.about.name), 24)),
            Cell::from(reasons().collect::<Vec<_>>().join(", ")),
            Cell::from(port.about.uri.clone()),
        ];
        cells.extend(more.into_iter().take(wider));
        Row::new(cells)
    });
    // The last column gets what is left, else the names of ports.
    let mut widths = WIDTHS.map(Constraint::Length).to_vec();
    match wider {
        0 => widths[0] = Constraint::Fill(1),
        wider => {
            widths.extend(WIDER[..wider].iter().map(|(_, width)| Constraint::Length(*width)));
            widths[0] = Constraint::Length(WIDTHS[0] + (room as u16 / 2).min(20));
            *widths.last_mut().expect("a column") = Constraint::Fill(1);
        }
    }
    let names = PORT_TITLES.iter().copied().chain(WIDER[..wider].iter().map(|(name, _)| *name));
    let names =
        names.enumerate().map(|(number, name)| match number < 2 || number >= WIDTHS.len() {
            true => Cell::from(name),
            false => right(name),
        });
    let header = Row::new(names).style(Theme::title().add_modifier(Modifier::UNDERLINED));
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let [of_table, of_detail] = match screen.detail {
        false => [area, Rect::ZERO],
        true => Layout::vertical([Constraint::Min(3), Constraint::Percentage(65)]).areas(area),
    };
    let mut state = TableState::new().with_selected((!ports.is_empty()).then_some(selected));
    frame.render_stateful_widget(table, of_table, &mut state);
    if let Some(port) = ports.get(selected).filter(|_| screen.detail) {
        frame.render_widget(Clear, of_detail);
        frame.render_widget(detail(screen, port, style, of_detail), of_detail);
    }
}

/// Returns the cells of the columns that every terminal shows.
fn cells<'t>(port: &PortRates, style: &Theme) -> Vec<Cell<'t>> {
    let about = &port.about;
    let ring = |ring: Option<Fill>| {
        let is_full = ring.is_some_and(|ring| share(ring) >= NEARLY_FULL);
        right(fill(ring)).style(if is_full { style.of(Color::Yellow) } else { Style::new() })
    };
    let mut cells = vec![
        Cell::from(about.name.clone()),
        Cell::from(about.state.clone()).style(style.state(&about.state)),
    ];
    for traffic in [port.rx, port.tx] {
        cells.extend([traffic.frames_per_s, traffic.bits_per_s].map(|rate| right(scaled(rate))));
    }
    cells.extend([about.receive_ring, about.transmit_ring].map(ring));
    let drops = if port.drops_per_s > 0.0 { style.bad() } else { Style::new() };
    cells.push(right(scaled(port.drops_per_s)).style(drops));
    cells
}

/// Returns all that is known of a port.
fn detail<'t>(screen: &Screen, port: &PortRates, style: &Theme, area: Rect) -> Paragraph<'t> {
    let about = &port.about;
    let label = |name: &str| Span::styled(format!("{name:<12}"), Theme::title());
    let line = |name: &str, text: String| Line::from(vec![label(name), Span::raw(text)]);
    let traffic = |name: &str, of: super::model::TrafficRates| {
        let [frames, bits] = [of.frames_per_s, of.bits_per_s].map(scaled);
        line(name, format!("{frames} frames/s, {bits} bit/s; {} frames in all", of.frames))
    };
    let mut lines = vec![line("where", about.uri.clone())];
    let state = Span::styled(about.state.clone(), style.state(&about.state));
    let why = about.unreachable.as_ref().map(|why| format!("; no peer: {why}")).unwrap_or_default();
    lines.push(Line::from(vec![label("peer"), state, Span::raw(why)]));
    if let Some(why) = &about.last_disconnect {
        let ago = about.last_disconnect_at.map(|at| format!(", {}", ago(at))).unwrap_or_default();
        lines.push(line("disconnect", format!("{why}{ago}")));
    }
    let ends: Vec<_> =
        about.disconnects.iter().map(|(why, times)| format!("{times} times {why}")).collect();
    if !ends.is_empty() {
        lines.push(line("disconnects", ends.join("; ")));
    }
    lines.push(traffic("received", port.rx));
    lines.push(traffic("sent", port.tx));
    let rings = [("receive", about.receive_ring), ("transmit", about.transmit_ring)];
    let rings = rings.map(|(name, ring)| match ring {
        None => format!("{name} -"),
        Some(ring) => format!("{name} {} of {} ({})", ring.used, ring.size, fill(Some(ring))),
    });
    lines.push(line("rings", rings.join(", ")));
    for (why, all) in port.dropped.iter().filter(|(_, all)| **all > 0) {
        let rate = scaled(port.drops.get(why).copied().unwrap_or(0.0));
        lines.push(line("dropped", format!("{why}: {rate}/s, {all} in all")));
    }
    lines.push(line("settings", about.settings.join(", ")));
    let width = usize::from(area.width).saturating_sub(14).min(120);
    lines.push(line("frames/s", sparkline(screen.history(&about.name), width)));
    let block = Block::new().borders(Borders::TOP).title(format!(" port {} ", about.name));
    Paragraph::new(lines).wrap(Wrap { trim: false }).block(block)
}

/// Describes how long ago a time, in seconds of the Unix epoch, was.
fn ago(at: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    format!("{} ago", humantime::format_duration(Duration::from_secs(now.saturating_sub(at))))
}

fn footer(screen: &Screen) -> Line<'static> {
    if screen.typing {
        return Line::raw(format!("filter: {}_   Enter keeps it, Esc clears it", screen.filter));
    }
    let order = if screen.reversed { ", reversed" } else { "" };
    let filter = match screen.filter.as_str() {
        "" => String::new(),
        filter => format!("  filter {filter:?}"),
    };
    let sort = match screen.sort {
        Sort::Added => "order of adding",
        sort => sort.name(),
    };
    Line::raw(format!(
        "q quit  arrows select  Enter details  s sort: {sort}{order}  r reverse  / filter{filter}"
    ))
}

/// Draws the newest `width` rates, relative to the highest of them.
fn sparkline(history: &History, width: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let newest: Vec<f64> = history.iter().rev().take(width).rev().copied().collect();
    let most = newest.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| match rate / most {
        // A rate above zero is visible.
        share if share > 0.0 => BARS[((share * 8.0).round() as usize).clamp(1, 8)],
        _ => BARS[0],
    };
    newest.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::reading;
    use super::*;

    fn screen() -> Screen {
        let (mut screen, start) = (Screen::default(), Instant::now());
        for (second, frames) in [0, 1_000_000, 3_000_000, 6_000_000].into_iter().enumerate() {
            screen.take(Ok(reading(start, second as u64, frames)));
        }
        screen
    }

    /// Returns the lines of a screen of this size.
    fn lines(screen: &Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(screen, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn eighty_columns_show_rates_rings_and_drops() {
        let lines = lines(&screen(), 80, 24);
        let expected = [
            "dray switch 0.2.0, up 1m 43s; mode learning, flow drop, 3 stations",
            "",
            " cpu   busy cycles/frame frames/batch frames/s                          receives",
        ];
        assert_eq!(lines[..3], expected);
    }

    #[test]
    fn wide_terminal_adds_history_reasons_and_uris() {
        let mut screen = screen();
        let lines_of = lines(&screen, 200, 20);
        for part in ["last minutes", "drop reasons", "where", "receiver_full 300k", "vhost:/run/"] {
            assert!(lines_of.iter().any(|line| line.contains(part)), "{part}");
        }
        screen.press(ratatui::crossterm::event::KeyCode::Down.into());
        screen.press(ratatui::crossterm::event::KeyCode::Enter.into());
        let lines = lines(&screen, 200, 30);
        assert!(lines.iter().any(|line| line.starts_with("settings")));
    }

    #[test]
    fn small_terminal_shows_required_size() {
        let lines = lines(&screen(), 60, 8);
        assert!(lines.join(" ").contains("has 60 columns and 8 lines; dray top needs 80 and 12"));
        // No size makes it panic.
        for (width, height) in [(1, 1), (80, 12), (81, 13), (500, 200)] {
            let mut screen = screen();
            super::tests::lines(&screen, width, height);
            screen.press(ratatui::crossterm::event::KeyCode::Enter.into());
            super::tests::lines(&screen, width, height);
        }
    }
}

//! State of the screen: the last rates, their history, and what the user has selected.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{PortRates, Rates, Reading, share};
use crate::common::has_colour;

/// Number of rates that are remembered of each port and worker.
const HISTORY: usize = 120;

/// Column to sort ports by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// The program's own order.
    #[default]
    Added,
    Name,
    Received,
    Sent,
    Ring,
    Drops,
}

impl Sort {
    const ALL: [Self; 6] =
        [Self::Added, Self::Name, Self::Received, Self::Sent, Self::Ring, Self::Drops];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Name => "name",
            Self::Received => "rx",
            Self::Sent => "tx",
            Self::Ring => "ring",
            Self::Drops => "drops",
        }
    }

    fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }

    /// Compares two ports: names upwards, numbers from the highest down.
    fn compare(self, a: &PortRates, b: &PortRates) -> Ordering {
        let fullest = |port: &PortRates| {
            let rings = [port.about.receive_ring, port.about.transmit_ring];
            let fill = rings.into_iter().flatten().map(share);
            fill.fold(0.0, f64::max)
        };
        match self {
            Self::Added => Ordering::Equal,
            Self::Name => a.about.name.cmp(&b.about.name),
            Self::Received => b.rx.frames_per_s.total_cmp(&a.rx.frames_per_s),
            Self::Sent => b.tx.frames_per_s.total_cmp(&a.tx.frames_per_s),
            Self::Ring => fullest(b).total_cmp(&fullest(a)),
            Self::Drops => b.drops_per_s.total_cmp(&a.drops_per_s),
        }
    }
}

/// Rates of the past, the newest last.
pub(super) type History = VecDeque<f64>;

/// The screen.
#[derive(Default)]
pub(crate) struct Screen {
    last: Option<Reading>,
    pub(super) rates: Option<Rates>,
    /// Why there is no newer reading.
    pub(super) silent: Option<String>,
    /// By name of a port, or CPU of a worker.
    history: HashMap<String, History>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// True while the user types the filter.
    pub(super) typing: bool,
    selected: Option<String>,
    pub(super) detail: bool,
    pub(super) colours: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { colours: has_colour(), ..Self::default() }
    }

    /// Takes a reading, or the reason for which the program gave no reply.
    pub(crate) fn take(&mut self, reading: Result<Reading, String>) {
        let reading = match reading {
            Ok(reading) => reading,
            Err(why) => {
                self.silent = Some(why);
                return;
            }
        };
        let rates = reading.since(self.last.as_ref());
        // The first reading has no rates.
        if rates.interval_s > 0.0 {
            let ports = rates.ports.iter().map(|p| (p.about.name.clone(), p.frames_per_s()));
            let workers = rates.workers.iter().map(|w| (worker_key(w.cpu), w.frames_per_s));
            let now: HashMap<_, _> = ports.chain(workers).collect();
            self.history.retain(|name, _| now.contains_key(name));
            for (name, rate) in now {
                let history = self.history.entry(name).or_default();
                history.push_back(rate);
                if history.len() > HISTORY {
                    history.pop_front();
                }
            }
        }
        self.silent = None;
        self.rates = Some(rates);
        self.last = Some(reading);
    }

    /// Handles a key; returns true if the user quits.
    pub(crate) fn press(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return true,
            KeyCode::Enter | KeyCode::Esc if self.typing => {
                if key.code == KeyCode::Esc {
                    self.filter.clear();
                }
                self.typing = false;
            }
            KeyCode::Backspace if self.typing => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.typing => self.filter.push(letter),
            KeyCode::Esc if self.detail => self.detail = false,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => self.sort = self.sort.step(1),
            KeyCode::Char('S') => self.sort = self.sort.step(Sort::ALL.len() - 1),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Enter => self.detail = !self.detail,
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(10),
            KeyCode::PageUp => self.select(-10),
            KeyCode::Home => self.select(isize::MIN / 2),
            KeyCode::End => self.select(isize::MAX / 2),
            _ => {}
        }
        false
    }

    /// Selects the port that is `by` lines away.
    fn select(&mut self, by: isize) {
        let ports = self.ports();
        let last = ports.len().saturating_sub(1) as isize;
        let at = (self.selected_line(&ports) as isize + by).clamp(0, last);
        self.selected = ports.get(at as usize).map(|port| port.about.name.clone());
    }

    /// Returns the line of the selected port; the first if it is gone.
    pub(super) fn selected_line(&self, ports: &[&PortRates]) -> usize {
        let is_selected = |port: &&PortRates| Some(&port.about.name) == self.selected.as_ref();
        ports.iter().position(is_selected).unwrap_or(0)
    }

    /// Returns the ports that pass the filter, in order.
    pub(super) fn ports(&self) -> Vec<&PortRates> {
        let Some(rates) = &self.rates else { return Vec::new() };
        let filter = self.filter.to_lowercase();
        let passes = |port: &&PortRates| {
            [&port.about.name, &port.about.uri]
                .iter()
                .any(|text| text.to_lowercase().contains(&filter))
        };
        let mut ports: Vec<_> = rates.ports.iter().filter(passes).collect();
        ports.sort_by(|a, b| self.sort.compare(a, b));
        if self.reversed {
            ports.reverse();
        }
        ports
    }

    /// Returns the history of a port, or of a worker by its [`worker_key`].
    pub(super) fn history(&self, name: &str) -> &History {
        static NONE: History = History::new();
        self.history.get(name).unwrap_or(&NONE)
    }
}

/// Returns the key of a worker's history, which no port can have as its name.
pub(super) fn worker_key(cpu: u32) -> String {
    format!("CPU {cpu}")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::model::tests::reading;
    use super::*;

    fn names(screen: &Screen) -> Vec<&str> {
        screen.ports().iter().map(|port| port.about.name.as_str()).collect()
    }

    fn press(screen: &mut Screen, keys: &str) -> bool {
        let code = |letter| match letter {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        keys.chars().fold(false, |_, letter| screen.press(code(letter).into()))
    }

    #[test]
    fn ports_are_sorted_and_filtered_by_key() {
        let (mut screen, start) = (Screen::default(), Instant::now());
        screen.take(Ok(reading(start, 0, 0)));
        screen.take(Ok(reading(start, 1, 1000)));
        assert_eq!(names(&screen), ["a", "b"]);
        press(&mut screen, "sss");
        assert_eq!((screen.sort, names(&screen)), (Sort::Sent, vec!["b", "a"]));
        press(&mut screen, "r");
        assert_eq!(names(&screen), ["a", "b"]);
        press(&mut screen, "rSS");
        assert_eq!((screen.sort, names(&screen)), (Sort::Name, vec!["a", "b"]));
        // The keys of commands are letters of the filter while it is typed.
        assert!(!press(&mut screen, "/B.SOCKq\u{1b}"));
        assert!(!press(&mut screen, "/B.SOCK\n"));
        assert_eq!(names(&screen), ["b"]);
        assert!(!press(&mut screen, "\u{1b}"));
        assert_eq!(names(&screen), ["a", "b"]);
        assert!(press(&mut screen, "q"));
    }

    #[test]
    fn selection_follows_port_not_line() {
        let (mut screen, start) = (Screen::default(), Instant::now());
        screen.take(Ok(reading(start, 0, 0)));
        screen.take(Ok(reading(start, 1, 1000)));
        press(&mut screen, "jj");
        assert_eq!(screen.selected_line(&screen.ports()), 1);
        press(&mut screen, "sss");
        assert_eq!(screen.selected_line(&screen.ports()), 0);
    }

    #[test]
    fn missing_program_is_shown_until_it_is_back() {
        let (mut screen, start) = (Screen::default(), Instant::now());
        screen.take(Ok(reading(start, 0, 0)));
        screen.take(Err("no program listens at /x".to_owned()));
        assert_eq!(screen.silent.as_deref(), Some("no program listens at /x"));
        assert!(screen.rates.is_some());
        screen.take(Ok(reading(start, 1, 0)));
        assert_eq!(screen.silent, None);
    }
}

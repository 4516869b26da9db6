//! The log of a daemon: events of `tracing`, each one line on standard error, or an entry with
//! fields in systemd's journal if that is where standard error goes.
//!
//! Peers can cause events, so events of one kind (one place in the code) are limited to
//! `BURST` in `WINDOW`; a later line says how many were left out. Data threads log nothing:
//! control threads look at what they publish.

mod journal;
mod text;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use journal::Journal;
use text::Text;

/// Number of events of a kind in [`WINDOW`].
const BURST: u32 = 100;
/// Time in which [`BURST`] events of a kind are logged: 144,000 lines a day.
const WINDOW: Duration = Duration::from_secs(60);

/// Levels, each with those before it.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Which events are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevel(LevelFilter);

impl LogLevel {
    /// Variable that has the level if the command line does not.
    pub const VARIABLE: &str = "DRAY_LOG";

    /// Reads the level from the environment; without one it is `info`.
    pub fn from_environment() -> Result<Self, String> {
        match std::env::var(Self::VARIABLE) {
            Ok(text) if !text.is_empty() => {
                text.parse().map_err(|what| format!("{}: {what}", Self::VARIABLE))
            }
            _ => Ok(Self(LevelFilter::INFO)),
        }
    }
}

impl std::str::FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = LEVELS.iter().find(|(name, _)| *name == text);
        level.map(|(_, level)| Self(*level)).ok_or_else(|| {
            let names = LEVELS.map(|(name, _)| name).join(", ");
            format!("no such level: {text:?}; give one of {names}")
        })
    }
}

static STARTED: OnceLock<&'static Log> = OnceLock::new();

/// Starts the log of the process. To be called once, by the program itself, before a sandbox.
pub fn start(level: LogLevel) {
    let log: &'static Log = Box::leak(Box::new(Log::new(level, Journal::of_process())));
    if STARTED.set(log).is_ok() {
        // It fails if another subscriber was set, which no program of ours does.
        let _ = tracing::subscriber::set_global_default(log);
    }
}

/// Returns true if events go to systemd's journal, which has no use for text for a terminal.
pub fn is_journal() -> bool {
    STARTED.get().is_some_and(|log| log.journal.is_some())
}

/// Logs how many events were left out by now. To be called now and then.
pub fn report_suppressed() {
    if let Some(log) = STARTED.get() {
        log.report_suppressed(Instant::now());
    }
}

/// Says why the program ends, on standard error or in the journal.
pub fn complain(why: &str) {
    match STARTED.get() {
        Some(log) if log.journal.is_some() => log.write(Level::ERROR, &Text::from(why)),
        // If standard error cannot be written, there is nothing more to do.
        _ => drop(writeln!(io::stderr(), "dray: {why}")),
    }
}

struct Log {
    level: LevelFilter,
    journal: Option<Journal>,
    kinds: Mutex<HashMap<Identifier, Kind>>,
}

/// Events of a kind.
struct Kind {
    level: Level,
    /// Message of the last one.
    message: String,
    /// Start of the window.
    began: Instant,
    logged: u32,
    suppressed: u64,
}

impl Log {
    fn new(level: LogLevel, journal: Option<Journal>) -> Self {
        Self { level: level.0, journal, kinds: Mutex::default() }
    }

    /// Counts an event; returns false if it is one too many.
    fn admit(&self, metadata: &Metadata<'_>, text: &Text, now: Instant) -> bool {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = kinds.entry(metadata.callsite()).or_insert_with(|| Kind {
            level: *metadata.level(),
            message: String::new(),
            began: now,
            logged: 0,
            suppressed: 0,
        });
        if now.duration_since(kind.began) >= WINDOW && kind.suppressed == 0 {
            (kind.began, kind.logged) = (now, 0);
        }
        if kind.logged < BURST {
            kind.logged += 1;
            return true;
        }
        kind.message.clone_from(&text.message);
        kind.suppressed += 1;
        false
    }

    fn report_suppressed(&self, now: Instant) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let over =
            |kind: &&mut Kind| kind.suppressed > 0 && now.duration_since(kind.began) >= WINDOW;
        for kind in kinds.values_mut().filter(over) {
            let mut text = Text::from("events left out");
            text.add("count", &kind.suppressed.to_string());
            text.add("of", &kind.message);
            self.write(kind.level, &text);
            (kind.began, kind.logged, kind.suppressed) = (now, 0, 0);
        }
    }

    fn write(&self, level: Level, text: &Text) {
        if let Some(journal) = &self.journal
            && journal.send(level, text).is_ok()
        {
            return;
        }
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        // A closed standard error must not end the program.
        let _ = io::stderr().write_all(format!("{time} {level:5} {text}\n").as_bytes());
    }
}

impl Subscriber for &'static Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= self.level
            && metadata.target().starts_with("dray")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        if self.admit(event.metadata(), &text, Instant::now()) {
            self.write(*event.metadata().level(), &text);
        }
    }

    // Spans are not used.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_a_word_from_the_list() {
        assert_eq!("warn".parse(), Ok(LogLevel(LevelFilter::WARN)));
        for wrong in ["", "WARN", "2", "loud"] {
            let error = wrong.parse::<LogLevel>().unwrap_err();
            assert!(error.ends_with("give one of off, error, warn, info, debug, trace"), "{error}");
        }
    }

    /// Events reach the log of the thread alone.
    #[test]
    fn events_of_a_kind_are_limited_and_counted() {
        let log: &'static Log =
            Box::leak(Box::new(Log::new("info".parse().unwrap(), Some(Journal::unread()))));
        tracing::subscriber::with_default(log, || {
            for number in 0..10_000 {
                tracing::warn!(port = "a", number, "peer disconnected");
                tracing::debug!("not logged at this level");
            }
            tracing::info!("of another kind");
        });
        let counts = || {
            let kinds = log.kinds.lock().unwrap();
            let mut counts: Vec<_> =
                kinds.values().map(|kind| (kind.logged, kind.suppressed)).collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!(counts(), [(1, 0), (BURST, 10_000 - u64::from(BURST))]);
        // Each event is logged or counted in a line, and the next window begins with that.
        log.report_suppressed(Instant::now());
        assert_eq!(counts()[1].1, 10_000 - u64::from(BURST));
        log.report_suppressed(Instant::now() + WINDOW);
        assert_eq!(counts(), [(0, 0), (1, 0)]);
    }
}

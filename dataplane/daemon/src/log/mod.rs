//! Log of a daemon: each event of `tracing` is one line on standard error, or an entry with fields
//! in systemd's journal if standard error goes there.
//!
//! Peers can cause events, so events of one kind (one place in the code) are limited to `BURST` in
//! `WINDOW`; a later line has the number of suppressed ones. Data threads log nothing: control
//! threads log what these publish.
//!
//! Hand-written, since `tracing-journald` finds the journal by path on a blocking socket for every
//! event: a confined daemon cannot reach that path, and a busy journal would stop it.

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

/// Least severe level that is logged.
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

/// Starts the log of the process. The program itself calls it, once, before it confines itself.
pub fn start(level: LogLevel) {
    let log: &'static Log = Box::leak(Box::new(Log::new(level, Journal::of_process())));
    if STARTED.set(log).is_ok() {
        // It fails if another subscriber was set, which no program of ours does.
        let _ = tracing::subscriber::set_global_default(log);
    }
}

/// Returns true if events go to systemd's journal, for which text for a terminal is noise.
pub fn is_journal() -> bool {
    STARTED.get().is_some_and(|log| log.journal.is_some())
}

/// Logs the numbers of suppressed events whose window has ended. Daemons call it about once a
/// second.
pub fn report_suppressed() {
    if let Some(log) = STARTED.get() {
        log.report_suppressed(Instant::now());
    }
}

/// Writes the reason that the program ends to standard error or the journal.
pub fn report_failure(why: &str) {
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

/// Events from one place in the code.
struct Kind {
    level: Level,
    /// Message of the last suppressed event.
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

    /// Counts an event; returns false if it exceeds the limit of its kind.
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
            let mut text = Text::from("events suppressed");
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
        // A report before the window ends changes nothing; one after it begins the next window.
        log.report_suppressed(Instant::now());
        assert_eq!(counts()[1].1, 10_000 - u64::from(BURST));
        log.report_suppressed(Instant::now() + WINDOW);
        assert_eq!(counts(), [(0, 0), (1, 0)]);
    }
}

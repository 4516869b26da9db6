//! The terminal: its state is restored in every case.

use std::io::{IsTerminal, stdin, stdout};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::model::Reading;
use super::screen::Screen;
use super::view;
use crate::common::{Failure, cancel_on_signals, usage};

/// Interval at which signals and new readings are checked.
const TICK: Duration = Duration::from_millis(100);

/// Returns an error if there is no terminal.
pub(crate) fn check() -> Result<(), Failure> {
    if stdout().is_terminal() && stdin().is_terminal() {
        return Ok(());
    }
    Err(usage!(
        "standard input and output must be a terminal; --once prints the rates of one interval, \
         --once --json as JSON"
    ))
}

/// The terminal in raw mode, with its other screen. Dropping it restores the terminal; so does a
/// panic, before its message.
struct Raw;

impl Drop for Raw {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = ratatui::try_restore();
    }
}

/// Waits for a key, at most for a [`TICK`].
///
/// # Errors
/// The other end of the terminal is closed. crossterm would read its end again and again.
fn wait() -> anyhow::Result<()> {
    let stdin = stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    match poll(&mut input, Some(&tick)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_gone = input[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
    anyhow::ensure!(!is_gone, "the terminal is gone");
    Ok(())
}

/// Shows what `read` returns, once per `interval`, until the user quits; `first` is the first
/// reading.
pub(crate) fn watch(
    read: impl Fn() -> Result<Reading, String> + Send + 'static,
    first: Reading,
    interval: Duration,
    mut screen: Screen,
) -> Result<(), Failure> {
    let cancel = cancel_on_signals()?;
    // A program that does not reply must not keep the user waiting.
    let (sender, readings) = mpsc::sync_channel(1);
    screen.take(Ok(first));
    thread::spawn(move || {
        loop {
            thread::sleep(interval);
            if sender.send(read()).is_err() {
                return;
            }
        }
    });
    let raw = Raw;
    let mut terminal = ratatui::try_init()?;
    let mut is_new = true;
    while cancel.check().is_ok() {
        for reading in readings.try_iter() {
            screen.take(reading);
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| view::draw(&screen, frame))?;
        }
        wait()?;
        is_new = event::poll(Duration::ZERO)?;
        if is_new
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && screen.press(key)
        {
            break;
        }
    }
    drop(raw);
    Ok(())
}

//! `dray top`: live view of a running program: its workers and its ports.

pub(crate) mod model;
mod screen;
mod source;
mod terminal;
mod view;

use std::thread;
use std::time::Duration;

use dray_daemon::ClientError;
use dray_text::table;

use self::model::{Rates, Reading};
use self::screen::Screen;
use self::source::Source;
use self::view::{headline, or_dash};
use crate::common::{Failure, print, print_json, scaled};
use crate::control::{Control, refused};

/// Watch a running switch or user plane function: workers, ports, rates, drops.
///
/// Asks the program by its control socket, once per interval, and shows rates on the whole terminal
/// until q or Ctrl-C. If the program ends, it waits until one is there again. For rates as lines of
/// text, see `dray switch stats --watch`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray top                            the switch, or the user plane function if there is no switch
  dray top upf                        the user plane function
  dray top bench                      the switch that dray bench measures
  dray top --interval 5 --control /run/dray/b.sock
  dray top --once                     rates of one second, as text
  dray top --once --json | jq '.ports[] | {name, drops_per_s}'
Keys:
  up, down   select a port            s, S   next or previous column to sort by
  Enter      details of the port      r      reverse the order
  /          filter by name or URI    q      quit")]
pub(crate) struct Arguments {
    /// Program to watch [default: the first of these that runs].
    #[arg(value_enum)]
    program: Option<Program>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    control: Control,
}

/// How rates are shown.
#[derive(clap::Args)]
pub(crate) struct Show {
    /// Time between readings, at least one second.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "1",
        hide_default_value = true,
        value_parser = interval
    )]
    pub(crate) interval: Duration,
    /// Print the rates of one interval, and end.
    #[arg(long)]
    once: bool,
    /// Write JSON instead of text.
    #[arg(long, requires = "once")]
    json: bool,
}

/// Programs that can be watched.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Program {
    /// `dray switch`.
    Switch,
    /// `dray upf`.
    Upf,
    /// The switch of a running `dray bench`, from trial to trial.
    #[cfg(feature = "laboratory")]
    Bench,
}

/// Parses an interval: more readings would take time from the program.
fn interval(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    time.filter(|time| allowed.contains(time)).ok_or_else(|| "give 1 to 3600 seconds".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.show.check()?;
    let (source, first) = arguments.find()?;
    let read = move || {
        source.read().map_err(|error| match error {
            ClientError::NotRunning { socket, .. } => {
                format!("no program listens at {}", socket.display())
            }
            other => other.to_string(),
        })
    };
    arguments.show.run(read, first)
}

impl Show {
    /// Returns an error if standard input or output is no terminal, unless `--once` is given.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.once { Ok(()) } else { terminal::check() }
    }

    /// Shows what `read` returns; `first` is the first reading.
    pub(crate) fn run(
        &self,
        read: impl Fn() -> Result<Reading, String> + Send + 'static,
        first: Reading,
    ) -> Result<(), Failure> {
        if !self.once {
            return terminal::watch(read, first, self.interval, Screen::new());
        }
        thread::sleep(self.interval);
        let rates = read().map_err(anyhow::Error::msg)?.since(Some(&first));
        if self.json { print_json(&rates) } else { print(&text(&rates)) }
    }
}

impl Arguments {
    /// Returns the selected program and its first reply.
    fn find(&self) -> Result<(Source, Reading), Failure> {
        let programs = match self.program {
            Some(program) => vec![program],
            None => vec![Program::Switch, Program::Upf],
        };
        let mut missing = None;
        for program in programs {
            let read = program.source(&self.control).and_then(|source| {
                let first = source.read().map_err(refused)?;
                Ok((source, first))
            });
            match read {
                Ok(found) => return Ok(found),
                // The error names the first program that was looked for.
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        Err(missing.expect("there are programs"))
    }
}

impl Program {
    fn source(self, control: &Control) -> Result<Source, Failure> {
        Ok(match self {
            Self::Switch => Source::Switch(control.switch()?),
            Self::Upf => Source::Upf(control.upf()?),
            #[cfg(feature = "laboratory")]
            Self::Bench => Source::Bench,
        })
    }
}

/// Returns rates as text.
fn text(rates: &Rates) -> String {
    let workers = rates.workers.iter().map(|worker| {
        vec![
            worker.cpu.to_string(),
            format!("{:.0}", 100.0 * worker.busy),
            or_dash(worker.cycles_per_frame),
            or_dash(worker.frames_per_batch),
            scaled(worker.frames_per_s),
        ]
    });
    let workers = table(&["cpu", "busy %", "cycles/frame", "frames/batch", "frames/s"], workers, 0);
    let ports = rates.ports.iter().map(|port| {
        let mut row = vec![port.about.name.clone(), port.about.state.clone()];
        for traffic in [port.rx, port.tx] {
            row.extend([traffic.frames_per_s, traffic.bits_per_s].map(scaled));
        }
        row.extend([port.about.receive_ring, port.about.transmit_ring].map(view::fill));
        row.push(scaled(port.drops_per_s));
        row
    });
    let ports = table(&view::PORT_TITLES, ports, 2);
    let workers = if rates.workers.is_empty() { String::new() } else { workers + "\n" };
    let mut text = format!("{}\n\n{workers}{ports}", headline(rates));
    for port in &rates.ports {
        let drops: Vec<_> =
            port.drops.iter().map(|(why, rate)| format!("{why} {}", scaled(*rate))).collect();
        if !drops.is_empty() {
            text += &format!("{}: dropped per second: {}\n", port.about.name, drops.join(", "));
        }
    }
    text
}

//! `dray switch stats`: counters, their rates, and their reset.

use std::io::{ErrorKind, IsTerminal, Write, stdout};
use std::thread;
use std::time::{Duration, Instant};

use dray_datapath::Cancel;
use dray_switch::PortStats;
use dray_switch::config::Name;

use super::show;
use crate::common::{Failure, cancel_on_signals};
use crate::control::{Query, refused};
use crate::parse;

/// Clears a terminal and moves its cursor to the first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(clap::Args)]
pub(super) struct Stats {
    /// Show only this port.
    #[arg(value_name = "PORT")]
    port: Option<Name>,
    /// Show rates for each SECONDS [default: 1], until Ctrl-C: in place on a terminal, otherwise
    /// one table after the other.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = parse::duration,
        conflicts_with = "json"
    )]
    watch: Option<Duration>,
    /// Count from zero again; the control socket's `GET /stats` is unaffected.
    #[arg(long, conflicts_with_all = ["port", "watch", "total", "json"])]
    reset: bool,
    /// Count from when each port was added, in spite of a reset.
    #[arg(long, conflicts_with = "watch")]
    total: bool,
    #[command(flatten)]
    query: Query,
}

impl Stats {
    pub(super) fn run(self) -> Result<(), Failure> {
        let client = self.query.control.switch()?;
        if self.reset {
            return client.reset_stats().map_err(refused);
        }
        if let Some(interval) = self.watch {
            return self.watch(interval);
        }
        let reset_s = client.status().map_err(refused)?.reset_s.filter(|_| !self.total);
        let stats = match reset_s {
            Some(_) => client.stats_since_reset(),
            None => client.stats(),
        };
        let stats = self.of_port(stats.map_err(refused)?)?;
        let since = reset_s.map_or(String::new(), |seconds| {
            format!("since the reset {seconds:.0} s ago; --total shows all\n")
        });
        self.query.show(&stats, |stats| since + &show::stats(stats))
    }

    /// Prints the rates of each interval until the command is cancelled.
    fn watch(&self, interval: Duration) -> Result<(), Failure> {
        let (client, cancel) = (self.query.control.switch()?, cancel_on_signals()?);
        let clear = if stdout().is_terminal() { CLEAR } else { "" };
        let take = || -> Result<_, Failure> {
            let stats = self.of_port(client.stats().map_err(refused)?)?;
            Ok((stats, Instant::now()))
        };
        let start = Instant::now();
        let (mut before, mut then) = take()?;
        for number in 1.. {
            let due = start + interval * number;
            while let Some(rest) = due.checked_duration_since(Instant::now()) {
                if cancel.check().is_err() {
                    return Ok(());
                }
                thread::sleep(rest.min(Cancel::INTERVAL));
            }
            let (stats, now) = take()?;
            let text = show::rates(&stats, &before, now - then);
            let seconds = start.elapsed().as_secs_f64();
            let text = format!("{clear}after {seconds:.0} s, rates per second:\n{text}\n");
            match stdout().write_all(text.as_bytes()) {
                // The reader has seen enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                result => result?,
            }
            (before, then) = (stats, now);
        }
        Ok(())
    }

    /// Returns the counters of the port that the user asked for, or of all.
    fn of_port(&self, stats: Vec<PortStats>) -> Result<Vec<PortStats>, Failure> {
        let Some(name) = &self.port else { return Ok(stats) };
        if let Some(of_port) = stats.iter().find(|port| port.name == *name) {
            return Ok(vec![of_port.clone()]);
        }
        let names: Vec<_> = stats.iter().map(|port| port.name.as_str()).collect();
        let there = match names.as_slice() {
            [] => "no ports".to_owned(),
            names => names.join(", "),
        };
        let what = format!("no such port: {:?}; the switch has {there}", name.as_str());
        Err(anyhow::anyhow!(what).into())
    }
}

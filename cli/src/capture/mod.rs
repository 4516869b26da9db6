//! `dray capture`: frames at the ports of a running switch, user plane function or role, as pcapng.

mod extcap;
mod filter;
mod output;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use dray_capture::{CaptureRequest, Counts, Record, Session, SessionError};
use dray_daemon::Client;
use dray_switch::config::CONTROL;

use crate::common::{Failure, cancel_on_signals, usage};
use crate::control::{Control, refused};
use crate::parse;
use output::{Ended, Output, Rotation};

/// Interval of polls while there are no frames.
const NAP: Duration = Duration::from_millis(1);

/// Capture frames at ports of a running switch, user plane function or role, as pcapng.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Ports: of the switch, their names; of a user plane function, `n3` and `n6`; of a role, their
    /// URIs.
    #[arg(value_name = "PORT")]
    ports: Vec<String>,
    /// All ports, also those that are added later.
    #[arg(long, conflicts_with = "ports")]
    all: bool,
    /// Write to this file; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    write: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// Keep only frames that match this expression, in the language of tcpdump (pcap-filter(7)).
    #[arg(short, long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// End after this number of frames; without it, on Ctrl-C.
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Begin another file when the current one has reached this size, such as 100M. The file name
    /// gets a number before its extension.
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    rotate: Option<u64>,
    /// Keep only this number of files.
    #[arg(
        long, value_name = "NUMBER", requires = "rotate",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    keep: Option<u32>,
    /// Capture at the user plane function, not at the switch.
    #[arg(long, conflicts_with = "control")]
    upf: bool,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    extcap: extcap::Options,
}

/// Options that Wireshark offers as well.
#[derive(clap::Args)]
struct Choice {
    /// Only what the ports receive from their peers (`in`), or send to them (`out`).
    #[arg(long, value_name = "in|out|both", default_value = "both", hide_possible_values = true)]
    direction: Direction,
    /// Only frames that are dropped, each with the reason as a comment.
    #[arg(long)]
    drops: bool,
    /// Keep only this number of bytes of each frame; 0: all.
    #[arg(short, long, value_name = "BYTES", default_value_t = 0)]
    snaplen: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Direction {
    In,
    Out,
    Both,
}

const EXAMPLES: &str = "\
Examples:
  dray capture --all -w all.pcapng              everything, until Ctrl-C
  dray capture a b | wireshark -k -i -          two ports, live
  dray capture a --filter 'udp port 2152' --count 100 | tshark -r -
  dray capture --all --drops | tshark -r - -T fields -e frame.interface_name -e frame.comment
  dray capture a --direction in --snaplen 96 -w a.pcapng --rotate 100M --keep 10
  dray capture --upf n3 -w n3.pcapng
  dray capture --control /run/dray/send.sock --all -w send.pcapng     of a role with the same --control
  ssh host dray capture a | wireshark -k -i -   of another host";

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { ports, all, write, choice, filter, count, rotate, keep, upf, control, extcap } =
        arguments;
    let Some(extcap) = extcap.request()? else {
        if ports.is_empty() && !all {
            return Err(usage!("give the names of ports, or --all"));
        }
        let is_standard = write.as_os_str() == "-";
        if is_standard && std::io::stdout().is_terminal() {
            return Err(usage!(
                "a terminal does not show frames: give -w FILE, or a pipe: \
                 dray capture ... | wireshark -k -i -"
            ));
        }
        if is_standard && rotate.is_some() {
            return Err(usage!("--rotate: give -w FILE as well"));
        }
        let rotation = rotate.map(|size| Rotation { size, keep });
        let socket = match upf {
            true => control.socket(dray_upf::api::CONTROL, "dray upf")?,
            false => control.socket(CONTROL, "dray switch")?,
        };
        let client = Client::new(&socket, if upf { "dray upf" } else { "dray switch" });
        let path = (!is_standard).then_some(write);
        let output = (path, rotation);
        let counts = capture(&client, ports, &choice, filter.as_deref(), count, output)?;
        eprintln!("{}", closing(counts));
        return Ok(());
    };
    let (client, ports, fifo, filter) = match extcap {
        extcap::Request::Print(text) => return crate::common::print(&text),
        extcap::Request::Capture { client, ports, fifo, filter } => (client, ports, fifo, filter),
    };
    let output = (Some(fifo), None);
    let counts = capture(&client, ports, &choice, filter.as_deref(), count, output)?;
    if counts.missed > 0 {
        // Wireshark shows any text on standard error as an error.
        eprintln!("{}", closing(counts));
    }
    Ok(())
}

/// Captures until a signal, the end of the program or of the reader, or `count` frames. Returns how
/// many there were.
fn capture(
    client: &Client,
    ports: Vec<String>,
    choice: &Choice,
    filter: Option<&str>,
    count: Option<u64>,
    (path, rotation): (Option<PathBuf>, Option<Rotation>),
) -> Result<Counts, Failure> {
    use dray_capture::Direction as Side;
    let cancel = cancel_on_signals()?;
    let filter = filter.map(str::trim).filter(|filter| !filter.is_empty());
    let want = CaptureRequest {
        ports,
        direction: match choice.direction {
            Direction::In => Some(Side::In),
            Direction::Out => Some(Side::Out),
            Direction::Both => None,
        },
        drops: choice.drops,
        snaplen: choice.snaplen,
        filter: filter.map(filter::compile).transpose()?,
    };
    let mut session = Session::start(client, &want).map_err(failed)?;
    let names = session.ports().to_vec();
    let mut output = Output::create(path, rotation, choice.snaplen, filter.unwrap_or_default())
        .map_err(Failure::from)?;
    for (number, name) in names.iter().enumerate() {
        if !name.is_empty() && (want.ports.is_empty() || want.ports.contains(name)) {
            output.add(number as u16, name);
        }
    }
    let reasons = session.reasons().to_vec();
    let mut left = count.unwrap_or(u64::MAX);
    let mut is_over = false;
    let result = loop {
        is_over |= session.is_over();
        let is_full = left == 0;
        let is_last = is_over || is_full || cancel.check().is_err();
        if is_last {
            session.stop();
        }
        let take = |record: &Record<'_>, time| {
            if !output.knows(record.port) {
                output.add(record.port, &name_of(client, record.port));
            }
            let reason = record.kind.reason().map_or("", |number| {
                reasons.get(usize::from(number)).map_or("unknown", String::as_str)
            });
            output.packet(record, time, reason);
            left -= 1;
            left > 0
        };
        let taken = if is_full { 0 } else { session.receive(is_last, take).map_err(failed)? };
        if taken == 0 && is_last {
            break output.finish(|port| session.counts(port));
        }
        if (taken == 0 || output.is_long())
            && let Err(ended) = output.write(|port| session.counts(port))
        {
            break Err(ended);
        }
        if taken == 0 {
            thread::sleep(NAP);
        }
    };
    let counts = session.total();
    if let Err(Ended::Failed(error)) = result {
        return Err(error.into());
    }
    if is_over {
        let (socket, line) = (client.socket().display(), closing(counts));
        return Err(anyhow::anyhow!("the program at {socket} has ended; {line}").into());
    }
    Ok(counts)
}

/// Returns the name of a port that was added after the start.
fn name_of(client: &Client, port: u16) -> String {
    let ports = dray_capture::ask_ports(client).unwrap_or_default();
    let name = ports.get(usize::from(port)).filter(|name| !name.is_empty());
    name.cloned().unwrap_or_else(|| format!("port {port}"))
}

/// The line that a capture ends with.
fn closing(Counts { captured, missed }: Counts) -> String {
    let frames = |number| dray_text::count(number, "frame");
    match missed {
        0 => format!("captured {}, missed none", frames(captured)),
        missed => format!(
            "captured {}, missed {}, for which the capture was too slow",
            frames(captured),
            frames(missed)
        ),
    }
}

fn failed(error: SessionError) -> Failure {
    match error {
        SessionError::Client(error) => refused(error),
        error @ SessionError::Memory(_) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_line_counts_frames() {
        let line = |captured, missed| closing(Counts { captured, missed });
        assert_eq!(line(1, 0), "captured 1 frame, missed none");
        let expected = "captured 0 frames, missed 2 frames, for which the capture was too slow";
        assert_eq!(line(0, 2), expected);
    }
}

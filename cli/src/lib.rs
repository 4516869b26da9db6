//! The `dray` command. A library, so that the program can be linked in another way without
//! compiling it again (`scripts/test-static.sh`).
#![forbid(unsafe_code)]

mod capture;
mod cdi;
mod cni;
mod common;
mod control;
mod engines;
#[cfg(feature = "install")]
mod install;
#[cfg(feature = "laboratory")]
mod laboratory;
mod log;
mod parse;
mod role;
mod sandbox;
mod service;
mod switch;
#[cfg(feature = "top")]
mod top;
mod upf;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use common::{Failure, one_line, report_error};

/// Connects the containers on one Linux host, and measures every way of doing it.
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[cfg(feature = "laboratory")]
const EXAMPLES: &str = "\
Examples:
  dray bench --quick                  a first look at every technique
  dray bench ara2019-table1           the paper's table, measured here
  dray report results.json -o page.html
                                      charts of what dray bench --json wrote
  dray doctor                         what this host offers, and what it lacks
  dray switch --port a=raw:eth0 --port b=raw:eth1
                                      frames from port to port, by MAC address
  dray send --port raw:eth0 --rate 1M test frames out of an interface
  dray lab up examples/ara2019.toml   containers and links by hand";

#[cfg(not(feature = "laboratory"))]
const EXAMPLES: &str = "\
Examples:
  dray switch --port a=raw:eth0 --port b=raw:eth1
                                      frames from port to port, by MAC address
  dray send --port raw:eth0 --rate 1M test frames out of an interface";

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "laboratory")]
    #[command(flatten)]
    Laboratory(laboratory::Command),
    Send(role::SendArguments),
    Receive(role::ReceiveArguments),
    Forward(role::ForwardArguments),
    Echo(role::EchoArguments),
    Ping(role::PingArguments),
    Switch(switch::Arguments),
    Capture(capture::Arguments),
    Cni(cni::Arguments),
    Cdi(cdi::Arguments),
    DockerPlugin(engines::DockerArguments),
    Netavark(engines::NetavarkArguments),
    #[cfg(feature = "top")]
    Top(top::Arguments),
    Upf(Box<upf::Arguments>),
    UpfLoad(upf::LoadArguments),
    #[cfg(feature = "install")]
    #[command(hide = true)]
    InstallFiles(install::Arguments),
}

/// The program: reads the command line of the process, runs the command, and prints its errors.
pub fn main() -> ExitCode {
    let Some(words) = cni::command_line() else { return cni::plugin() };
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return wrong_usage(&error),
        Err(help) => help.exit(),
    };
    let result = match arguments.command {
        #[cfg(feature = "laboratory")]
        Command::Laboratory(command) => match laboratory::run(command, check) {
            Ok(status) => return status,
            Err(failure) => Err(failure),
        },
        Command::Send(arguments) => role::send(arguments),
        Command::Receive(arguments) => role::receive(arguments),
        Command::Forward(arguments) => role::forward(arguments),
        Command::Echo(arguments) => role::echo(arguments),
        Command::Ping(arguments) => role::ping(arguments),
        Command::Switch(arguments) => switch::run(arguments),
        Command::Capture(arguments) => capture::run(arguments),
        Command::Cni(arguments) => cni::run(&arguments),
        Command::Cdi(arguments) => cdi::run(&arguments),
        Command::DockerPlugin(arguments) => engines::docker(arguments),
        Command::Netavark(arguments) => return engines::netavark(arguments),
        #[cfg(feature = "top")]
        Command::Top(arguments) => top::run(&arguments),
        Command::Upf(arguments) => upf::run(*arguments),
        Command::UpfLoad(arguments) => upf::load(arguments),
        #[cfg(feature = "install")]
        Command::InstallFiles(arguments) => {
            install::run(&arguments, <Arguments as clap::CommandFactory>::command())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => report_error(&format!("{error:#}"), 1),
        Err(Failure::Usage(error)) => report_error(&format!("{error:#}"), 2),
        #[cfg(feature = "laboratory")]
        Err(Failure::Slower(error)) => report_error(&format!("{error:#}"), 3),
        #[cfg(feature = "laboratory")]
        Err(Failure::NotJudged(error)) => report_error(&format!("{error:#}"), 4),
    }
}

/// Checks a command line of `dray` as if it were given here; the error is one line.
#[cfg(feature = "laboratory")]
fn check(words: &[String]) -> Result<(), String> {
    match Arguments::try_parse_from(words) {
        Err(error) if error.use_stderr() => Err(one_line(&error)),
        _ => Ok(()),
    }
}

/// Prints a usage error in one line that names the argument.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    #[cfg(feature = "laboratory")]
    use clap::error::{ContextKind, ContextValue};
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = write!(std::io::stderr(), "{error}");
        return ExitCode::from(2);
    }
    #[cfg(feature = "laboratory")]
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && laboratory::is_experiment(name)
    {
        return report_error(&format!("{name:?} is an experiment: give `dray bench {name}`"), 2);
    }
    report_error(&one_line(error), 2)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn clap_accepts_command_definition() {
        super::Arguments::command().debug_assert();
    }
}

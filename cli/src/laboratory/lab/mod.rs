//! `dray lab`: containers and links by hand, and clean-up of what labs leave behind.

mod exec;
pub(crate) mod find;
mod logs;
mod show;
mod top;
mod up;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use dray_lab::topology::{self, Topology};
use dray_lab::{placement, standing};

use self::find::find;
use crate::common::{CheckCommand, Failure, print, print_json};

/// Work with the lab's containers by hand.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray lab up examples/casoni2013-chain.toml
  dray lab ls
  dray lab exec sender -- dray send --port raw:eth0 --rate 10k --duration 1
  dray lab logs receiver
  dray lab graph --output chain.svg
  dray lab top --web 127.0.0.1:8080
  dray lab down")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create the containers and links that a file describes, and leave them up.
    #[command(after_help = "\
Examples:
  dray lab up examples/ara2019.toml
  dray lab up examples/ara2019.toml --name second")]
    Up(up::Arguments),
    /// End a lab's commands, print how each ended, and remove everything.
    #[command(
        after_help = "Examples:\n  dray lab down\n  dray lab down ara2019\n  dray lab down --all"
    )]
    Down(Down),
    /// Show the labs that are up: containers, their ports and what runs in them.
    #[command(after_help = "Examples:\n  dray lab ls\n  dray lab ls ara2019 --json")]
    Ls(Ls),
    /// Run a command in a container; passes on its exit status.
    #[command(after_help = "\
Examples:
  dray lab exec sender -- ip address
  dray lab exec --lab ara2019 receiver -- dray receive --port raw:eth0 --duration 5
  dray lab exec sender -- sh")]
    Exec(exec::Arguments),
    /// Show what the commands in the containers have written.
    #[command(after_help = "\
Examples:
  dray lab logs
  dray lab logs receiver --follow
  dray lab logs --lab ara2019 receiver")]
    Logs(logs::Arguments),
    /// Draw a topology as SVG.
    #[command(after_help = "\
Examples:
  dray lab graph examples/casoni2013-fan.toml > fan.svg
  dray lab graph ara2019 --output ara2019.svg")]
    Graph(Graph),
    /// Watch the rates at the ends of a lab's links, on a terminal or in a browser.
    #[command(after_help = "\
Examples:
  dray lab top
  dray lab top casoni2013-fan --once --json
  dray lab top --web 127.0.0.1:8080      a page with the picture of the lab, and rates on its links
Keys: see dray top --help")]
    Top(top::Arguments),
    /// Remove what a killed dray left behind, and only that. Every start of a lab does the same.
    #[command(after_help = "Example:\n  dray lab clean")]
    Clean,
    #[command(hide = true, name = up::KEEP_COMMAND)]
    Keep(up::KeepArguments),
}

#[derive(clap::Args)]
struct Down {
    /// Name of the lab; not needed if one lab is up.
    lab: Option<String>,
    /// Take all labs down.
    #[arg(long, conflicts_with = "lab")]
    all: bool,
}

#[derive(clap::Args)]
struct Ls {
    /// Show only this lab.
    lab: Option<String>,
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Graph {
    /// Topology file, or name of a lab that is up; not needed if one lab is up.
    #[arg(value_name = "FILE.toml|LAB")]
    what: Option<String>,
    /// Write to this file instead of to standard output.
    #[arg(short, long, value_name = "FILE.svg")]
    output: Option<PathBuf>,
}

/// `check` checks commands for `dray` in the containers of a topology.
pub(crate) fn run(arguments: Arguments, check: CheckCommand) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Up(arguments) => up::run(arguments, check),
        Command::Down(arguments) => down(&arguments),
        Command::Ls(arguments) => ls(&arguments),
        Command::Exec(arguments) => return exec::run(&arguments),
        Command::Logs(arguments) => logs::run(&arguments),
        Command::Graph(arguments) => graph(&arguments, check),
        Command::Top(arguments) => top::run(arguments),
        Command::Clean => clean(),
        Command::Keep(arguments) => up::keep(&arguments),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn clean() -> Result<(), Failure> {
    let removed = dray_lab::clean()?;
    let lines: String = removed.iter().map(|lab| format!("removed {lab}\n")).collect();
    print(if lines.is_empty() { "nothing to remove\n" } else { &lines })
}

fn down(arguments: &Down) -> Result<(), Failure> {
    let labs = match arguments.all {
        true => standing::find_all()?,
        false => vec![find(arguments.lab.as_deref())?],
    };
    if labs.is_empty() {
        return print("no lab is up\n");
    }
    for lab in labs {
        let ends = lab.down()?;
        print(&show::ends(lab.name(), &ends))?;
    }
    Ok(())
}

fn ls(arguments: &Ls) -> Result<(), Failure> {
    let labs = match &arguments.lab {
        Some(name) => vec![find(Some(name))?],
        None => standing::find_all()?,
    };
    let mut states = Vec::new();
    for lab in labs {
        match lab.state() {
            Ok(state) => states.push(state),
            Err(error) if arguments.lab.is_some() => return Err(error.into()),
            // The lab may be coming up or going down; the others are still shown.
            Err(error) => eprintln!("dray: {error}"),
        }
    }
    if arguments.json { print_json(&states) } else { print(&show::labs(&states)) }
}

fn graph(arguments: &Graph, check: CheckCommand) -> Result<(), Failure> {
    let is_file = |what: &&String| what.ends_with(".toml") || Path::new(what).is_file();
    let topology = match arguments.what.as_ref().filter(is_file) {
        Some(file) => up::load(Path::new(file), check).map_err(Failure::usage)?.0,
        None => {
            let state = find(arguments.what.as_deref())?.state()?;
            let read =
                Topology::read(&state.file, &state.text, &placement::reachable(), &|_| Ok(()));
            Topology { name: state.name, ..read? }
        }
    };
    let svg = topology::draw(&topology);
    match &arguments.output {
        Some(path) => {
            Ok(fs::write(path, svg).with_context(|| format!("writing {}", path.display()))?)
        }
        None => print(&svg),
    }
}

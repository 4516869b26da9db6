//! Filters in the language of tcpdump: compiled by tcpdump itself, which prints the program.
//!
//! The compiler is part of libpcap. It is not linked: Debian's static libpcap needs libraries of
//! which there are no static ones, and the program has to run without shared libraries, in any
//! container.

use std::io::ErrorKind;
use std::process::{Command, Output, Stdio};

use anyhow::anyhow;
use dray_capture::filter::Program;

use crate::common::{Failure, usage};

/// Paths of tcpdump; some systems have it in a directory that is not in a user's `PATH`.
const TCPDUMP: [&str; 3] = ["tcpdump", "/usr/sbin/tcpdump", "/sbin/tcpdump"];

/// Compiles an expression for Ethernet.
pub(super) fn compile(expression: &str) -> Result<Program, Failure> {
    let Output { status, stdout, stderr } = run(expression)?;
    if status.success() {
        let program = String::from_utf8_lossy(&stdout).parse::<Program>();
        return program.map_err(|error| anyhow!("tcpdump -ddd {expression:?}: {error}").into());
    }
    let reason = String::from_utf8_lossy(&stderr);
    let reason = reason.lines().map(|line| line.trim_start_matches("tcpdump: ")).next_back();
    Err(usage!("--filter {expression:?}: {}", reason.unwrap_or("tcpdump does not compile it")))
}

fn run(expression: &str) -> Result<Output, Failure> {
    for program in TCPDUMP {
        let mut command = Command::new(program);
        command.args(["-ddd", "-y", "EN10MB", "--", expression]).stdin(Stdio::null());
        match command.output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(anyhow!("{program}: {error}").into()),
            Ok(output) => return Ok(output),
        }
    }
    Err(anyhow!("--filter needs tcpdump, which compiles expressions: apt install tcpdump").into())
}

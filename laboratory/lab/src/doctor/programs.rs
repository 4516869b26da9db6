//! Programs that can be measured besides dray, or that help with measurements.

use std::process::Command;
use std::thread;
use std::time::Duration;

use dray_results::HostFacts;

use super::finding::{Finding, State};
use crate::Runtime;
use crate::peer::{find_ns3, ns3};
use crate::process::installed;

const GROUP: &str = "programs";

/// Time limit for a program to print its version.
const TIMEOUT: Duration = Duration::from_secs(2);

struct Program {
    name: String,
    /// False for programs that ignore `--version` and start.
    reports_version: bool,
    /// Cost of a missing program, and how to get it; `None` if others can replace it.
    advice: Option<(&'static str, &'static str)>,
}

pub(super) fn examine(host: &HostFacts) -> Vec<Finding> {
    // In parallel, since each program may use its whole time limit.
    thread::scope(|scope| {
        let runtimes = Runtime::ALL.into_iter().filter(|runtime| *runtime != Runtime::Embedded);
        let runtimes = runtimes.map(|runtime| scope.spawn(move || examine_runtime(runtime)));
        let programs = programs(&host.architecture).into_iter();
        let programs = programs.map(|program| scope.spawn(move || examine_one(&program)));
        let threads: Vec<_> = runtimes.chain(programs).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Finding>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

fn programs(architecture: &str) -> Vec<Program> {
    let program = |name: &str, reports_version, advice| Program {
        name: name.to_owned(),
        reports_version,
        advice,
    };
    let wanted = |name, cost, remedy| program(name, true, Some((cost, remedy)));
    let silent = |name, cost, remedy| program(name, false, Some((cost, remedy)));
    let qemu_package = match architecture {
        "x86_64" | "i686" => "apt install qemu-system-x86",
        "aarch64" => "apt install qemu-system-arm",
        _ => "apt install qemu-system",
    };
    vec![
        wanted(
            "ovs-vswitchd",
            "Open vSwitch is not measured",
            "apt install openvswitch-switch (openvswitch-switch-dpdk for its user-space datapath)",
        ),
        silent("dpdk-testpmd", "DPDK is not measured", "apt install dpdk-dev"),
        silent(
            "vpp",
            "VPP is not measured",
            "not in Debian: packages from packagecloud.io/fdio, or build it from \
             github.com/FDio/vpp",
        ),
        silent(
            "snabb",
            "Snabb is not measured",
            "not in Debian: build it from github.com/snabbco/snabb",
        ),
        wanted(
            &format!("qemu-system-{architecture}"),
            "virtual machines are not measured",
            qemu_package,
        ),
        silent(ns3::PROGRAM, "ns-3 is not measured", "make ns-3, see docs/ns-3.md"),
        wanted("iperf3", "figures cannot be checked against iperf3", "apt install iperf3"),
        wanted(
            "perf",
            "CPU cycles cannot be attributed to functions",
            "apt install linux-perf (Ubuntu: linux-tools-$(uname -r))",
        ),
    ]
}

fn examine_runtime(runtime: Runtime) -> Finding {
    match runtime.find() {
        Ok(version) => Finding::new(GROUP, runtime.name(), State::Ok, version),
        Err(what) => {
            let package = runtime.package().unwrap_or_default();
            Finding::new(GROUP, runtime.name(), State::Missing, what)
                .advise(format!("its containers are not measured; apt install {package}"))
        }
    }
}

fn examine_one(program: &Program) -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, &*program.name, state, detail);
    let found = match &*program.name {
        ns3::PROGRAM => find_ns3(),
        name => installed::find(name, None),
    };
    let Some(file) = found else {
        let missing = finding(State::Missing, "not installed");
        return match program.advice {
            Some((cost, remedy)) => missing.advise(format!("{cost}; {remedy}")),
            None => missing,
        };
    };
    let version = if program.reports_version {
        installed::first_answer(Command::new(&file).arg("--version"), TIMEOUT)
    } else {
        None
    };
    match version {
        Some(version) => finding(State::Ok, &version),
        None => finding(State::Ok, &file.to_string_lossy()),
    }
}

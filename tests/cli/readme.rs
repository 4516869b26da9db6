//! Runs the commands of README.md as they are printed there.

use std::fs;
use std::time::Duration;

use crate::common::alone;
use crate::pages::{Block, TOP, blocks, execute, missing};

/// How the lines of a block are run.
enum Plan {
    /// It is no command.
    Output,
    /// It is not run, for a reason.
    Skip(&'static str),
    /// One after the other in one shell, except those that contain certain words, for a reason.
    InTurn(&'static [(&'static str, &'static str)]),
    /// Each in a terminal of its own, in the order of the page, with a command such as
    /// `ip netns exec b` in front. The last one has some seconds; then Ctrl-C ends all.
    Together(&'static [&'static str]),
}

/// A block, which begins with these words.
struct Commands {
    words: &'static str,
    plan: Plan,
    /// Commands that prepare what the reader already has.
    setup: &'static str,
    /// Lines of the output, as in `missing`.
    output: &'static [&'static str],
}

const README: &[Commands] = &[
    Commands {
        words: "make demo",
        plan: Plan::Skip("it installs packages and builds dray for minutes"),
        setup: "",
        output: &[],
    },
    Commands { words: "link ", plan: Plan::Output, setup: "", output: &[] },
    Commands {
        words: "dray switch",
        plan: Plan::Together(&["", "", ""]),
        setup: "",
        output: &["received ... frames, ...", "sent ... frames, ..."],
    },
    Commands {
        words: "dray upf",
        plan: Plan::Together(&["", "ip netns exec load"]),
        setup: "
            ip netns add load
            for i in 0 1; do
                ip link add eth$i type veth peer name eth$i netns load
                ip link set eth$i up
                ip -n load link set eth$i up
            done",
        output: &["uplink: received ...", "uplink: sent ..."],
    },
    Commands {
        words: "sudo ",
        plan: Plan::InTurn(&[
            ("bench ara2019-table1", "it takes minutes"),
            ("bench loss-free", "it takes minutes"),
            ("bench switches", "it takes minutes"),
        ]),
        setup: r#"
            mkdir -p target/release
            ln -s ../../bin/dray target/release/dray
            printf '#!/bin/sh\nexec "$@"\n' >bin/sudo
            chmod 755 bin/sudo
            for name in s before after; do cp "$SETUPS/../../results/rates.json" $name.json; done"#,
        output: &["... every technique this host can run, ...", "A: before.json", "B: after.json"],
    },
    Commands {
        words: "dray receive",
        plan: Plan::Together(&[
            "ip netns exec b",
            "ip netns exec a",
            "ip netns exec m",
            "ip netns exec p",
        ]),
        setup: "
            for name in a m b p; do ip netns add $name; ip -n $name link set lo up; done
            ip link add eth0 netns a type veth peer name eth0 netns m
            ip link add eth1 netns m type veth peer name eth0 netns b
            for end in 'a eth0' 'm eth0' 'm eth1' 'b eth0'; do
                ip -n ${end% *} link set ${end#* } up
            done
            ip -n p addr add 10.0.0.1/24 dev lo
            ip -n p addr add 10.0.0.2/24 dev lo
            ip netns exec p dray echo --port udp:10.0.0.2:9000-10.0.0.1:9000 >/dev/null &",
        output: &[
            "received ... frames, ...",
            "sent ... frames, ...",
            "received ... frames, ... transmitted ...",
            "sent ... frames, ... came back, ...",
        ],
    },
    Commands {
        words: "dray lab up",
        plan: Plan::InTurn(&[]),
        setup: "",
        output: &[
            "lab casoni2013-chain is up: ...",
            "sent ... frames, ...",
            "receiver: dray receive ...",
            "received ... frames, ...",
            "lab casoni2013-chain is down; ...",
        ],
    },
];

/// Longest time of a block.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the commands that run a block, or nothing where it is not run.
fn script(block: &Block<'_>, commands: &Commands) -> Option<String> {
    let mut script = format!("{}\n", commands.setup);
    let lines = block.lines.iter().filter(|line| !line.is_empty());
    match commands.plan {
        Plan::Output => return None,
        Plan::Skip(why) => {
            eprintln!("README.md, line {}: skipped: {why}", block.line);
            return None;
        }
        Plan::InTurn(skipped) => {
            for line in lines {
                if let Some((_, why)) = skipped.iter().find(|(words, _)| line.contains(words)) {
                    eprintln!("README.md: {line}: skipped: {why}");
                } else {
                    script += &format!("{line}\n");
                }
            }
        }
        Plan::Together(places) => {
            let lines: Vec<_> = lines.collect();
            assert_eq!(lines.len(), places.len(), "README.md, line {}", block.line);
            let names = || (0..lines.len()).map(|index| format!("output.{index}"));
            for ((line, place), name) in lines.iter().zip(places).zip(names()) {
                // A shell of its own, which also removes the comment at the end of the line.
                script += &format!("{place} bash -c {} >{name} 2>&1 &\n", quoted(line));
                script += "roles=\"$! $roles\"\nsleep 1\n";
            }
            script += "sleep 4\nfor role in $roles; do\n    kill -INT -$role || true\n    \
                       wait $role || echo \"status $?\"\ndone\n";
            script += &names().map(|name| format!("cat {name}\n")).collect::<String>();
        }
    }
    Some(script)
}

fn quoted(line: &str) -> String {
    format!("'{}'", line.replace('\'', r"'\''"))
}

#[test]
fn readme_commands_work() {
    let _alone = alone();
    require_root!();
    let page = fs::read_to_string(format!("{TOP}/README.md")).unwrap();
    let mut failures = Vec::new();
    for block in blocks(&page) {
        let first = block.lines.first().copied().unwrap_or_default();
        let Some(commands) = README.iter().find(|commands| first.starts_with(commands.words))
        else {
            panic!(
                "README.md, line {}: tests/cli/readme.rs does not say how to run it",
                block.line
            );
        };
        let Some(script) = script(&block, commands) else { continue };
        let failure = match execute(&script, LIMIT) {
            Err(why) => Some(why),
            Ok(output) => {
                missing(commands.output, &output).map(|line| format!("no {line:?} in:\n{output}"))
            }
        };
        failures.extend(failure.map(|why| format!("README.md, line {}: {why}", block.line)));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

//! Peers that lie. Whatever a driver says or writes, the switch stays up, the liar is disconnected
//! with a reason that names the lie (or what it said may be said), its port takes another driver,
//! and two well-behaved ports next to it lose nothing.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "modules of this program alone")]

mod liar;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use liar::lies;
use liar::ours::Ours;
use liar::testpmd::{self, Testpmd};
use liar::{Expect, Lie};

/// Liars at a time.
const AT_ONCE: usize = 4;

/// The lies whose names contain what `LIE` says; without it, all.
fn chosen() -> Vec<&'static Lie> {
    let part = std::env::var("LIE").unwrap_or_default();
    lies::all().filter(|lie| lie.name.contains(&part)).collect()
}

/// Has each lie told to a running switch, and returns what became of each.
fn hear_all(lies: &[&Lie]) -> Vec<Result<String, String>> {
    let ours = Ours::start();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(vec![Ok(String::new()); lies.len()]));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(lie) = lies.get(number)
                {
                    let outcome = ours.hear(lie, number);
                    outcomes.lock().expect("no panic")[number] = outcome;
                }
            });
        }
    });
    match ours.finish() {
        Ok(frames) => eprintln!("{} lies; the neighbours exchanged {frames} frames", lies.len()),
        Err(what) => panic!("the neighbours noticed: {what}"),
    }
    outcomes.into_inner().expect("no panic")
}

#[test]
fn no_lie_harms_anybody_but_the_liar() {
    let lies = chosen();
    let outcomes = hear_all(&lies);
    let mut failed = Vec::new();
    for (lie, outcome) in lies.iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => eprintln!("{}: {outcome}", lie.name),
            Err(what) => failed.push(format!("{}: {what}", lie.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The table in `docs/hostile-peers.md`:
/// `cargo test --release --test liars -- --ignored --nocapture testpmd`.
#[test]
#[ignore = "minutes, and a table to be read"]
fn testpmd() {
    assert!(testpmd::is_there(), "apt-get install dpdk");
    let lies = chosen();
    let ours = hear_all(&lies);
    let program = std::env::current_exe().expect("this program").display().to_string();
    println!("| what the driver does | dray | testpmd |\n|---|---|---|");
    let mut switch: Option<Testpmd> = None;
    for (lie, ours) in lies.iter().zip(ours) {
        let running = switch.get_or_insert_with(Testpmd::start);
        let (theirs, usable) = running.hear(lie);
        if !usable {
            switch = None;
        }
        let ours = ours.unwrap_or_else(|what| format!("**failed**: {what}"));
        let ours = match lie.expect {
            Expect::Refused(_) => format!("disconnected: {ours}"),
            Expect::Harmless if ours == "nothing" => "goes on".to_owned(),
            _ => ours,
        };
        println!("| {} | {} | {theirs} |", lie.name, ours.replace(&program, "/the/program"));
    }
}

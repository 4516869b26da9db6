//! Runs the commands of docs/recipes.md as they are printed there, and compares their output with what
//! the page says. Each recipe runs in namespaces of its own, with an empty /run, and ends with them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{self, DRAY, Started, alone};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes.md");

/// Scripts that prepare what a user of a recipe already has.
const SETUPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cli/recipes");

/// Longest time of a recipe. Those with a guest or an engine take half a minute on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A section of the page, and what its commands need.
#[derive(Clone, Copy)]
struct Recipe {
    heading: &'static str,
    /// Programs or files, each with the package that has it.
    needs: &'static [(&'static str, &'static str)],
    /// Name of a script in `SETUPS`, without `.sh`.
    setup: Option<&'static str>,
}

const RECIPES: &[Recipe] = &[
    Recipe { heading: "DPDK testpmd", needs: &[("dpdk-testpmd", "dpdk-dev")], setup: None },
    Recipe {
        heading: "QEMU guest",
        needs: &[
            ("qemu-system-x86_64", "qemu-system-x86"),
            ("ping", "iputils-ping"),
            ("/var/cache/dray/vm/initrd", "the files of scripts/setup-vm.sh"),
        ],
        setup: Some("qemu"),
    },
    Recipe {
        heading: "Docker",
        needs: &[("dockerd", "docker.io"), ("docker", "docker.io")],
        setup: Some("docker"),
    },
    Recipe {
        heading: "LXC container",
        needs: &[("lxc-start", "lxc"), ("lxc-attach", "lxc")],
        setup: Some("lxc"),
    },
    Recipe {
        heading: "Capture with tshark",
        needs: &[("tshark", "tshark"), ("ping", "iputils-ping")],
        setup: None,
    },
];

/// A fenced block of a page.
#[derive(Debug)]
struct Block<'a> {
    /// Number of its first line in the page.
    line: usize,
    heading: &'a str,
    /// What follows the opening fence: `sh` for commands, `sh alice` for commands of another user,
    /// `text` for the output of the block of commands before it.
    info: &'a str,
    lines: Vec<&'a str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let (mut heading, mut inside) = ("", false);
    for (index, line) in page.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            if !inside {
                blocks.push(Block { line: index + 2, heading, info, lines: Vec::new() });
            }
            inside = !inside;
        } else if inside {
            blocks.last_mut().expect("an open block").lines.push(line);
        } else if let Some(title) = line.strip_prefix("## ") {
            heading = title;
        }
    }
    assert!(!inside, "the last fenced block has no end");
    blocks
}

/// Returns true if a line of output is as the page says: words are equal, a decimal number stands
/// for any, and `...` for any number of words.
fn matches(expected: &[&str], actual: &[&str]) -> bool {
    let is_decimal = |word: &str| {
        let number = word.trim_matches(|c: char| !c.is_ascii_digit());
        number.contains('.') && number.parse::<f64>().is_ok()
    };
    let frame = |word: &str| word.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    match (expected, actual) {
        ([], []) => true,
        (["...", rest @ ..], _) => {
            (0..=actual.len()).any(|skipped| matches(rest, &actual[skipped..]))
        }
        ([first, rest @ ..], [word, others @ ..]) => {
            let same = first == word
                || is_decimal(first) && is_decimal(word) && frame(first) == frame(word);
            same && matches(rest, others)
        }
        _ => false,
    }
}

/// Returns the first line of `expected` that does not follow in `output`, where other lines may come
/// between.
fn missing<'a>(expected: &[&'a str], output: &str) -> Option<&'a str> {
    let mut lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut comes = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words == ["..."] || lines.any(|actual| matches(&words, &actual))
    };
    expected.iter().copied().find(|line| !comes(line))
}

/// Line that the script prints before the output of a block of commands.
fn marker(index: usize) -> String {
    format!("=== commands {index} ===")
}

/// Runs the blocks of commands of one section, one after the other in the same shell, and compares
/// their output. The error contains all output.
fn run(blocks: &[Block<'_>], setup: Option<&str>, limit: Duration) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    std::os::unix::fs::symlink(DRAY, at("bin/dray")).unwrap();
    let mut script = PRELUDE.to_owned();
    if let Some(setup) = setup {
        script += &format!("bash -eu \"$SETUPS/{setup}.sh\"\n");
    }
    for (index, block) in blocks.iter().enumerate() {
        let commands = match block.info.split_once(' ') {
            None if block.info == "sh" => format!("block-{index}"),
            Some(("sh", user)) => format!("as-{user}-{index}"),
            _ => continue,
        };
        fs::write(at(&commands), block.lines.join("\n") + "\n").unwrap();
        let runs = if block.info == "sh" { "." } else { "as-user" };
        script += &format!("echo '{}'\n{runs} ./{commands}\n", marker(index));
    }
    fs::write(at("script"), script).unwrap();
    let log = at("output");
    let output = File::create(&log).unwrap();
    let mut shell = Command::new("unshare");
    shell
        .args(["--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"])
        .args(["--mount-proc", "bash", "-e", "script"])
        .current_dir(folder.path())
        .env("SETUPS", SETUPS)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output);
    let mut shell = Started(shell.spawn().expect("unshare starts"));
    let deadline = Instant::now() + limit;
    let status = loop {
        match shell.0.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => sleep(Duration::from_millis(20)),
        }
    };
    // Everything in its process namespace dies with it.
    drop(shell);
    remove_control_groups();
    let output = String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned();
    match status {
        None => return Err(format!("not done after {limit:?}:\n{output}")),
        Some(status) if !status.success() => return Err(format!("{status}:\n{output}")),
        Some(_) => {}
    }
    let mut part = "";
    for (index, block) in blocks.iter().enumerate() {
        if block.info == "text" {
            if let Some(line) = missing(&block.lines, part) {
                return Err(format!("line {}: no {line:?} in:\n{output}", block.line));
            }
        } else {
            let rest = output.split_once(&marker(index)).expect("the block ran").1;
            part = rest.split("=== commands ").next().expect("a first part");
        }
    }
    Ok(())
}

/// First commands of every recipe: nothing of it reaches the machine's network, mounts or /run.
const PRELUDE: &str = r#"
mount --make-rprivate /
for folder in /run /dev/shm; do mount -t tmpfs -o mode=755 tmpfs $folder; done
# crun refuses a host with both cgroup versions.
umount /sys/fs/cgroup/unified 2>/dev/null || true
ip link set lo up
unset XDG_RUNTIME_DIR DOCKER_HOST CONTAINER_HOST
export HOME=$PWD PATH=$PWD/bin:$PATH:/usr/sbin:/sbin
chmod 755 .
as-user() { setpriv --reuid 1000 --regid 1000 --clear-groups bash -e "$1"; }
"#;

/// Removes what killed engines left. Their groups are below `dray-recipes` in each hierarchy.
fn remove_control_groups() {
    fn remove(group: &Path) {
        for entry in fs::read_dir(group).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
        // A group that still has processes stays.
        let _ = fs::remove_dir(group);
    }
    let root = PathBuf::from("/sys/fs/cgroup");
    remove(&root.join("dray-recipes"));
    for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
        remove(&hierarchy.path().join("dray-recipes"));
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    Path::new(program).is_absolute() && Path::new(program).exists()
        || path.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// Runs a section of the page, or skips it for a reason that names what is missing.
fn recipe(heading: &str) {
    let _alone = alone();
    require_root!();
    let recipe = RECIPES.iter().find(|recipe| recipe.heading == heading).expect("a recipe");
    if let Some((program, package)) = recipe.needs.iter().find(|(name, _)| !is_installed(name)) {
        common::skip(&format!("{heading}: {program} is missing; install {package}"));
        return;
    }
    let page = fs::read_to_string(PAGE).unwrap();
    let mut blocks = blocks(&page);
    blocks.retain(|block| block.heading == heading);
    if let Err(why) = run(&blocks, recipe.setup, LIMIT) {
        panic!("docs/recipes.md, {heading}: {why}");
    }
}

#[test]
fn testpmd_recipe_works() {
    recipe("DPDK testpmd");
}

#[test]
fn qemu_recipe_works() {
    recipe("QEMU guest");
}

#[test]
fn docker_recipe_works() {
    recipe("Docker");
}

#[test]
fn lxc_recipe_works() {
    recipe("LXC container");
}

#[test]
fn tshark_recipe_works() {
    recipe("Capture with tshark");
}

#[test]
fn every_recipe_is_run_and_has_output() {
    let source = include_str!("recipes.rs");
    let page = fs::read_to_string(PAGE).unwrap();
    let blocks = blocks(&page);
    for block in &blocks {
        let (line, heading) = (block.line, block.heading);
        assert!(
            RECIPES.iter().any(|recipe| recipe.heading == heading),
            "docs/recipes.md, line {line}: no test has the recipe {heading:?}"
        );
        let known = block.info == "text" || block.info.split(' ').next() == Some("sh");
        assert!(known, "docs/recipes.md, line {line}: a block of {:?}", block.info);
    }
    for Recipe { heading, .. } in RECIPES {
        let test = format!("    recipe({heading:?});\n");
        assert!(source.contains(&test), "no test runs the recipe {heading:?}");
        let mut infos = blocks.iter().filter(|b| b.heading == *heading).map(|block| block.info);
        assert!(infos.next() == Some("sh") && infos.any(|info| info == "text"), "{heading:?}");
    }
}

#[test]
fn broken_recipe_fails() {
    let _alone = alone();
    require_root!();
    let judge = |page: &str| run(&blocks(page), None, Duration::from_secs(5));
    let good = "## A\n```sh\nmkdir -p /run/dray\ndray switch &\nsleep 0.5; dray switch ports >/dev/null\n\
                echo 3 of 5, 1.50 ms, more\nkill %1\n```\n```text\n3 of 5, 7.25 ms, ...\n```\n";
    assert_eq!(judge(good), Ok(()));
    let wrong = judge(&good.replace("\n3 of", "\n4 of")).unwrap_err();
    assert!(wrong.starts_with("line 10: no \"4 of 5, 7.25 ms, ...\" in:"), "{wrong}");
    let failing = judge(&good.replace("switch ports", "switch prots")).unwrap_err();
    assert!(failing.starts_with("exit status: 2") && failing.contains("prots"), "{failing}");
    let endless = judge(&good.replace("kill", "sleep 60; kill")).unwrap_err();
    assert!(endless.starts_with("not done after 5s"), "{endless}");
    let second = judge(&format!("{good}```sh\necho 2\n```\n```text\n3 of 5, 7.25 ms, ...\n```\n"));
    assert!(second.unwrap_err().starts_with("line 16: no \"3 of"));
}

#[test]
fn output_is_compared_by_words() {
    let same = |expected: &str, actual: &str| missing(&[expected], actual).is_none();
    assert!(same("time=0.759 ms", "  time=12.1  ms"));
    assert!(same("10.0.0.2: seq=1", "10.0.0.2: seq=1"));
    assert!(same("sent ... lost 0, ...", "sent 3, lost 0, more 1"));
    assert!(same("...", ""));
    for (expected, actual) in [
        ("lost 0", "lost 5"),
        ("lost 0", "lost 0, more 0"),
        ("time=0.7 ms", "time=0.7 us"),
        ("10.0.0.2: up", "10.0.0.3: up"),
        ("sent ... lost 0", "sent 3"),
    ] {
        assert!(!same(expected, actual), "{expected:?} {actual:?}");
    }
    assert_eq!(missing(&["a", "b"], "b\na"), Some("b"));
}

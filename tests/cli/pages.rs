//! Fenced blocks of a page, and their commands run in namespaces of their own, with an empty /run.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{DRAY, Started, eventually};

/// The repository.
pub(crate) const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A fenced block of a page.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    /// Number of its first line in the page.
    pub(crate) line: usize,
    pub(crate) heading: &'a str,
    /// Text after the opening fence: `sh` for commands, `sh alice` for commands of another user,
    /// `text` for the output of the block of commands before it.
    pub(crate) info: &'a str,
    pub(crate) lines: Vec<&'a str>,
}

pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
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

/// Returns the first line of `expected` that does not follow in `output`, where other lines may
/// come between.
pub(crate) fn missing<'a>(expected: &[&'a str], output: &str) -> Option<&'a str> {
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
pub(crate) fn run(
    blocks: &[Block<'_>],
    setup: Option<&str>,
    limit: Duration,
) -> Result<(), String> {
    let mut script = String::new();
    if let Some(setup) = setup {
        script += &format!("bash -eu \"$SETUPS/{setup}.sh\"\n");
    }
    for (index, block) in blocks.iter().enumerate() {
        if let Some(user) = block.info.strip_prefix("sh") {
            script += &format!("echo '{}'\n", marker(index));
            let commands = block.lines.join("\n");
            script += &match user.trim() {
                "" => commands + "\n",
                user => format!("as {user} <<'COMMANDS'\n{commands}\nCOMMANDS\n"),
            };
        }
    }
    let output = execute(&script, limit)?;
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

/// Runs a script in namespaces of its own, and returns its output. It fails at the first command
/// that fails.
pub(crate) fn execute(script: &str, limit: Duration) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    symlink(format!("{TOP}/examples"), at("examples")).unwrap();
    fs::write(at("script"), PRELUDE.to_owned() + script).unwrap();
    let output = File::create(at("output")).unwrap();
    let mut shell = Command::new("unshare");
    shell
        .args(["--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"])
        .args(["--mount-proc", "bash", "-e", "script"])
        .current_dir(folder.path())
        .env("DRAY", DRAY)
        .env("SETUPS", format!("{TOP}/tests/cli/recipes"))
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
    assert!(eventually(control_groups_are_gone), "control groups of a recipe stay");
    let output = String::from_utf8_lossy(&fs::read(at("output")).unwrap()).into_owned();
    match status {
        None => Err(format!("not done after {limit:?}:\n{output}")),
        Some(status) if !status.success() => Err(format!("{status}:\n{output}")),
        Some(_) => Ok(output),
    }
}

/// First commands of every script: nothing of it reaches the machine's network, mounts or /run.
/// Jobs are as in an interactive shell. `as USER` runs its input as another user.
const PRELUDE: &str = r#"
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /dev/shm
# crun refuses a host with both cgroup versions.
umount /sys/fs/cgroup/unified 2>/dev/null || true
# Where every user can read it, wherever it was built.
touch bin/dray
mount --bind "$DRAY" bin/dray
ip link set lo up
unset XDG_RUNTIME_DIR DOCKER_HOST CONTAINER_HOST
export HOME=$PWD PATH=$PWD/bin:$PATH:/usr/sbin:/sbin
chmod 755 .
as() {
    (
        export HOME=$(getent passwd "$1" | cut -d: -f6) XDG_RUNTIME_DIR=/run/user/$(id -u "$1")
        cd "$HOME"
        exec setpriv --reuid "$1" --regid "$1" --init-groups bash -e
    )
}
export -f as
set -m
"#;

/// Removes what killed engines left. Their groups are below `dray-recipes` in each hierarchy.
/// Returns false as long as a group has processes.
fn control_groups_are_gone() -> bool {
    fn remove(group: &Path) -> bool {
        for entry in fs::read_dir(group).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
        fs::remove_dir(group).is_ok() || !group.exists()
    }
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten();
    let mut parents = hierarchies.map(|hierarchy| hierarchy.path()).chain([root.to_owned()]);
    parents.all(|parent| remove(&parent.join("dray-recipes")))
}

/// Returns true if the machine has a program, or a file where the name is a path.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut folders = path.split(':');
    // An absolute path replaces the folder.
    folders.any(|folder| Path::new(folder).join(program).is_file())
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

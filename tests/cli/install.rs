//! `make install` puts the program, completions and man pages where shells and man(1) look.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{DRAY, alone, success};
use crate::pages;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Returns the output of a program; `None` if this machine lacks it.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    Command::new(program).args(arguments).env("MANPAGER", "cat").env("MANWIDTH", "80").output().ok()
}

fn install(destination: &Path) {
    let (program, to) = (format!("DRAY={DRAY}"), format!("DESTDIR={}", destination.display()));
    let made = run("make", &["--silent", "-C", ROOT, "install", &program, &to, "PREFIX=/usr"]);
    let made = made.expect("make");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Returns the words of each command that `dray` has: `[]`, `["bench"]`, `["lab", "up"]`.
fn commands(of: &[String]) -> Vec<Vec<String>> {
    let words: Vec<&str> = of.iter().map(String::as_str).chain(["--help"]).collect();
    let help = success(&words);
    let mut all = vec![of.to_vec()];
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        // A description that goes on in the next line is further to the right.
        if name != "help" && line.starts_with("  ") && !line.starts_with("   ") {
            all.extend(commands(&[of, &[name.to_owned()]].concat()));
        }
    }
    all
}

#[test]
fn install_writes_completions_and_a_page_for_each_command() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    let at = |path: &str| folder.path().join("usr").join(path);
    let installed = run(at("bin/dray").to_str().unwrap(), &["--version"]).expect("the program");
    assert!(installed.status.success());

    for (shell, path) in [
        ("bash", "share/bash-completion/completions/dray"),
        ("zsh", "share/zsh/site-functions/_dray"),
        ("fish", "share/fish/vendor_completions.d/dray.fish"),
    ] {
        let text = fs::read_to_string(at(path)).unwrap();
        // clap_complete writes values of options for all shells, but names of experiments, which
        // are no option's, not for fish.
        let experiments = ["ara2019-table1", "selfcheck"].into_iter().filter(|_| shell != "fish");
        for word in ["bench", "technique", "podman", "bridge"].into_iter().chain(experiments) {
            assert!(text.contains(word), "{path} does not offer {word}");
        }
        // In fish's file the option --keep is a word, too.
        let keep = (shell != "fish").then_some("keep");
        for hidden in ["install-files", "inside"].into_iter().chain(keep) {
            let is_word = |word: &str| word == hidden;
            let has = text.split(|c: char| !c.is_alphanumeric() && c != '-').any(is_word);
            assert!(!has, "{path} offers {hidden}");
        }
        if let Some(checked) = run(shell, &["-n", at(path).to_str().unwrap()]) {
            let said = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(checked.status.success() && said.is_empty(), "{shell}: {said}");
        }
    }

    let all = commands(&[]);
    assert!(all.len() > 20, "{all:?}");
    let is_group = |words: &Vec<String>| {
        all.iter().any(|other| other.len() > words.len() && other.starts_with(words))
    };
    for words in &all {
        let name = [&["dray".to_owned()][..], words].concat().join("-");
        let page = at(&format!("share/man/man1/{name}.1"));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{name}.1: {error}"));
        assert!(text.contains(".SH NAME"), "{name}");
        // A group of commands may leave examples to its commands.
        assert!(text.contains(".SH \"EXAMPLES\"") || is_group(words), "{name} has no examples");
        if let Some(shown) = run("man", &["--warnings", "-l", page.to_str().unwrap()]) {
            let [shown, said] = [shown.stdout, shown.stderr]
                .map(|text| String::from_utf8_lossy(&text).into_owned());
            assert!(shown.contains("NAME") && said.is_empty(), "{name}: {said}");
        }
    }
    assert_eq!(fs::read_dir(at("share/man/man1")).unwrap().count(), all.len());
}

#[test]
fn install_without_built_program_gives_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let to = format!("DESTDIR={}", folder.path().display());
    let made = run("make", &["--silent", "-C", ROOT, "install", "DRAY=/nosuch/dray", &to]).unwrap();
    assert!(!made.status.success());
    assert!(String::from_utf8_lossy(&made.stderr).contains("run make build first"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Units of systemd, with a configuration and commands that see what they start.
const SERVICES: [(&str, &str, &str); 2] = [
    (
        "switch",
        "[[ports]]\nname = \"a\"\nuri = \"vhost:/run/dray/a.sock\"\n",
        "dray switch ports | grep vhost:/run/dray/a.sock",
    ),
    ("upf", include_str!("../../examples/upf.toml"), "dray upf status"),
];

#[test]
fn services_start_and_end_in_order() {
    let _alone = alone();
    require_root!();
    for (name, config, look) in SERVICES {
        let unit =
            fs::read_to_string(format!("{ROOT}/deploy/systemd/dray-{name}.service")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("dray-{name}.service"));
        fs::write(&path, unit.replace("/usr/bin/dray", DRAY)).unwrap();
        if let Some(checked) =
            run("systemd-analyze", &["verify", "--man=no", path.to_str().unwrap()])
        {
            let said = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(!said.contains(&format!("dray-{name}")), "{said}");
        }
        let line = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key));
        let command = line("ExecStart=/usr/bin/").unwrap();
        let ports = line("Environment=").unwrap_or_default();
        // The folder of configurations is the script's own.
        let script = format!(
            "cat >{name}.toml <<'EOF'\n{config}\nEOF\n\
             ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip link set eth1 up\n\
             export {ports}\n{} &\nuntil {look}; do sleep 0.1; done\nkill %1; wait %1\n",
            command.replace("/etc/dray/", ""),
        );
        let ended = pages::execute(&script, Duration::from_secs(20));
        let output = ended.unwrap_or_else(|why| panic!("dray-{name}.service: {why}"));
        assert!(output.contains(&format!("dray {name}: ended after")), "{output}");
    }
}

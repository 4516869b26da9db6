//! A switch that root starts, and that becomes another user.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dray_switch::PortState;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::takeover::{assert_is_user, fails, folder_of, rights};
use crate::common::veths::Veths;
use crate::common::{self, DRAY, Started, alone, eventually, listens};
use crate::ends;
use crate::exchange::{never_reconnected, pass_both_ways};
use crate::manager::Manager;
use crate::safety::without;
use crate::takeover::{PROGRAM, Running};

const USER: u32 = 4242;
const GROUP: u32 = 4243;
const OPTIONS: [&str; 2] = ["--user", "4242:4243"];

/// Ends a switch. Returns the names that are left in its folder.
fn left_by(mut running: Running) -> Vec<String> {
    common::signal(&running.process.0, Signal::TERM);
    assert!(running.process.0.wait().unwrap().success());
    let left = fs::read_dir(running.folder.path()).unwrap().flatten();
    left.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn frames_pass_through_all_ports_of_a_switch_that_changes_its_user() {
    require_root!();
    let _alone = alone();
    let veths = Veths::new(1, &[["v0", "v1"], ["w0", "w1"]]);
    let inside = |uri: &str| veths.open(uri);
    let [mut veth, mut other] = ["raw:v1", "raw:w1"].map(inside);
    let ports = [
        "a=vhost:DIR/a",
        "tap=tap:tap0",
        "b=vhost:DIR/b",
        "raw=raw:v0",
        "c=vhost:DIR/c",
        "memif=memif:DIR/memif?role=server",
        "d=vhost:DIR/d",
        "afxdp=afxdp:w0",
    ];
    let options = [&["--mode", "patch"][..], &OPTIONS].concat();
    let folder = folder_of(USER, GROUP);
    let mut running = Running::in_folder(folder, Some(veths.0.clone()), &options, &ports);
    assert!(eventually(|| running.port("tap").state == PortState::Running));
    let mut tap = inside("raw:tap0");
    let memif = running.folder.path().join("memif");
    let mut memif = ends::open(&format!("memif:{}", memif.display()));
    ends::wait_until_up(&memif);
    let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(|name| running.plug(name, ""));
    for _ in 0..2 {
        assert_is_user(&running.process, USER, GROUP);
        pass_both_ways(&mut a, &mut tap);
        pass_both_ways(&mut b, &mut veth);
        pass_both_ways(&mut c, &mut memif);
        pass_both_ways(&mut d, &mut other);
        running.take_over_by(|command| command.args(OPTIONS));
    }
    assert!(never_reconnected(&memif) && never_reconnected(&c));
    // Ports of the switch's user come and go.
    let path = running.folder.path().join("e");
    for uri in [format!("vhost:{}", path.display()), format!("unix:{}", path.display())] {
        running.client().add_port(&format!("e={uri}").parse().unwrap()).unwrap();
        let file = fs::metadata(&path).unwrap();
        assert_eq!((file.uid(), file.gid()), (USER, GROUP), "{uri}");
        running.client().remove_port(&"e".parse().unwrap()).unwrap();
        assert!(!path.exists(), "{uri}");
    }
    assert_eq!(left_by(running), [""; 0]);
}

/// Root starts the first process; its user starts the next one, and root the last.
#[test]
fn root_and_its_user_take_over_from_each_other() {
    require_root!();
    let _alone = alone();
    let options = [&["--mode", "patch"][..], &OPTIONS].concat();
    let ports = ["a=vhost:DIR/a", "b=vhost:DIR/b"];
    let mut running = Running::in_folder(folder_of(USER, GROUP), None, &options, &ports);
    let (mut a, mut b) = (running.plug("a", ""), running.plug("b", ""));
    pass_both_ways(&mut a, &mut b);
    running.take_over_by(|command| command.uid(USER).gid(GROUP));
    pass_both_ways(&mut a, &mut b);
    running.take_over_by(|command| command.args(OPTIONS));
    pass_both_ways(&mut a, &mut b);
    assert!(never_reconnected(&a) && never_reconnected(&b));
    assert_is_user(&running.process, USER, GROUP);
    // No process of another user takes over from it.
    let why = fails(PROGRAM.takes_over(&running.control()).args(["--user", "root"]));
    assert!(why.contains("user 4242's, and this is user 0") && why.contains("--user"), "{why}");
    let why = fails(PROGRAM.takes_over(&running.control()).uid(65534));
    assert!(why.contains("Permission denied"), "{why}");
    assert_eq!(left_by(running), [""; 0]);
}

/// With a supervisor that keeps its state, as systemd does for a unit of root.
#[test]
fn restarted_and_killed_switch_continues_as_the_user() {
    require_root!();
    let _alone = alone();
    let arguments =
        ["switch", "--user", "4242:4243", "--mode", "patch", "a=vhost:DIR/a", "b=vhost:DIR/b"];
    let mut manager = Manager::run(folder_of(USER, GROUP), 3, &arguments);
    let (mut a, mut b) = (manager.plug("a", ""), manager.plug("b", ""));
    for is_killed in [false, true] {
        pass_both_ways(&mut a, &mut b);
        manager.settle();
        if is_killed {
            manager.kill();
        } else {
            let said = manager.end(Signal::TERM);
            assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
            manager.start();
        }
        manager.wait();
        pass_both_ways(&mut a, &mut b);
    }
    assert!(never_reconnected(&a) && never_reconnected(&b));
    assert_eq!(user_of(manager.process()), USER);
}

/// Returns the number of a process's user.
fn user_of(process: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap();
    line.split('\t').next().unwrap().parse().unwrap()
}

/// A configuration is read again by the user, and the process's own files for metrics are there.
#[test]
fn switch_of_another_user_reloads_its_file_and_measures_itself() {
    require_root!();
    let _alone = alone();
    let folder = folder_of(USER, GROUP);
    let file = folder.path().join("switch.toml");
    let config = file.display().to_string();
    fs::write(&file, "").unwrap();
    let running =
        Running::in_folder(folder, None, &["--config", &config, "--user", "4242:4243"], &[]);
    fs::write(&file, "[[ports]]\nname = \"a\"\nuri = \"null:\"\n").unwrap();
    common::signal(&running.process.0, Signal::HUP);
    assert!(eventually(|| running.client().port(&"a".parse().unwrap()).is_ok()));
    let metrics = common::success(&[
        "switch",
        "metrics",
        "--control",
        &running.control().display().to_string(),
    ]);
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total"] {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        assert!(
            value.is_some_and(|value| value.trim().parse::<f64>().is_ok_and(|it| it > 0.0)),
            "{name}"
        );
    }
}

/// Starts a switch as root, where `/etc/passwd` has `users` and `/run` is empty, or as it is after
/// `prepare`. Returns it, the folder of its log, and the directory of its
/// sockets as it sees this.
fn start_among(users: &str, prepare: &str, options: &[&str]) -> (Started, TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let passwd = folder.path().join("passwd");
    fs::write(&passwd, users).unwrap();
    let log = folder.path().join("log");
    let script = format!(
        "mount --bind {} /etc/passwd && mount -t tmpfs -o mode=755 run /run && {prepare} && \
         exec \"$@\" 2>{}",
        passwd.display(),
        log.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", DRAY, "switch", "a=vhost:/run/dray/x/a"]);
    command.args(options).stdin(Stdio::null()).stdout(Stdio::null());
    let switch = Started(command.spawn().unwrap());
    let run = PathBuf::from(format!("/proc/{}/root/run/dray", switch.0.id()));
    assert!(eventually(|| listens(run.join("switch.sock"))), "{}", read(&folder));
    assert!(eventually(|| read(&folder).contains("control socket:")), "{}", read(&folder));
    (switch, folder, run)
}

/// Returns the log of a switch.
fn read(folder: &TempDir) -> String {
    fs::read_to_string(folder.path().join("log")).unwrap_or_default()
}

const ROOT: &str = "root:x:0:0:root:/root:/bin/sh\n";
const DRAY_USER: &str = "root:x:0:0:root:/root:/bin/sh\ndray:x:4242:4243::/run/dray:/bin/false\n";

#[test]
fn switch_of_root_becomes_the_user_dray_if_there_is_one() {
    require_root!();
    let _alone = alone();
    let everything = rights(&Started(Command::new("sleep").arg("60").spawn().unwrap()));
    let root = [["0 0 0 0".to_owned(), "0 0 0 0".to_owned(), "0".repeat(16)]];
    for (users, options, user, said) in [
        (DRAY_USER, &[][..], Some(USER), ""),
        (ROOT, &[], None, "user: stays root, as there is no user dray"),
        (DRAY_USER, &["--user", "root"], None, ""),
        (DRAY_USER, &["--sandbox", "off"], None, "sandbox: off"),
        (DRAY_USER, &["--sandbox", "off", "--user", "dray"], Some(USER), "sandbox: off"),
    ] {
        let (switch, log, run) = start_among(users, "true", options);
        match user {
            Some(_) => assert_is_user(&switch, USER, GROUP),
            None if said == "sandbox: off" => assert_eq!(rights(&switch)[0], everything[0]),
            None => assert!(rights(&switch).iter().all(|rights| *rights == root[0])),
        }
        let text = read(&log);
        assert!(text.contains(said), "{options:?}: {text}");
        assert_eq!(text.contains("stays root"), said.contains("stays root"), "{text}");
        let rights_of = |name: &str| {
            let file = fs::metadata(run.join(name)).unwrap();
            (file.uid(), file.gid(), file.mode() & 0o7777)
        };
        let (owner, group) = user.map_or((0, 0), |user| (user, GROUP));
        assert_eq!(rights_of("switch.sock"), (owner, group, 0o660), "{options:?}");
        assert_eq!((rights_of("x").0, rights_of("x/a").0), (owner, owner), "{options:?}");
        if user.is_some() {
            // Members of the group may create files there, and replace none of root's.
            assert_eq!(rights_of(""), (0, GROUP, 0o1775));
            for name in ["cni", "vhost", "claims"] {
                assert_eq!((rights_of(name).0, rights_of(name).2), (0, 0o700), "{name}");
            }
        }
    }
}

/// A directory that another user or group has, and one that is not writable for the user.
#[test]
fn directories_of_others_are_not_given_to_the_user() {
    require_root!();
    let _alone = alone();
    for (prepare, rights) in [
        ("mkdir -m 755 /run/dray && chown 0:7 /run/dray", (0, 7, 0o755)),
        ("mkdir -m 755 /run/dray && chown 9:0 /run/dray", (9, 0, 0o755)),
        ("mkdir -m 1777 /run/dray", (0, 0, 0o1777)),
    ] {
        let (_switch, log, run) = start_among(DRAY_USER, prepare, &[]);
        let folder = fs::metadata(&run).unwrap();
        assert_eq!((folder.uid(), folder.gid(), folder.mode() & 0o7777), rights, "{prepare}");
        let text = read(&log);
        let is_told =
            text.contains("user: dray cannot write in /run/dray: sockets cannot be added");
        assert_eq!(is_told, rights.2 != 0o1777, "{prepare}: {text}");
    }
}

/// The capabilities of the switch's pod in `deploy/kubernetes/switch.yaml`.
const POD: &str = "setpriv --bounding-set -all,+sys_admin,+net_admin,+setuid,+setgid --groups 4243";

#[test]
fn pod_with_few_capabilities_becomes_the_user() {
    require_root!();
    let _alone = alone();
    let prepare = format!("mkdir /run/dray && set -- {POD} \"$@\"");
    let (switch, log, run) = start_among(DRAY_USER, &prepare, &[]);
    assert_is_user(&switch, USER, GROUP);
    let folder = fs::metadata(&run).unwrap();
    assert_eq!((folder.gid(), folder.mode() & 0o7777), (GROUP, 0o1775));
    assert!(!read(&log).contains("cannot"), "{}", read(&log));
    drop(switch);

    // The pod's probes are root without capabilities, in the user's group.
    let folder = folder_of(0, GROUP);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1775)).unwrap();
    let control = folder.path().join("control").display().to_string();
    let start = |capabilities: &str, arguments: &[&str]| {
        let mut words = capabilities.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(DRAY).args(arguments).args(["--control", &control]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let arguments = ["switch", "--user", "4242:4243", "a=null:"];
    let mut switch = Started(start(POD, &arguments));
    assert!(eventually(|| listens(&control)));
    let probe = "setpriv --bounding-set -all --clear-groups";
    for (probe, is_well) in
        [(&probe.replace("--clear-groups", "--groups 4243")[..], true), (probe, false)]
    {
        let output = start(probe, &["switch", "health"]).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_well, "{probe}: {said}");
    }
    common::signal(&switch.0, Signal::TERM);
    assert!(switch.0.wait().unwrap().success());
    assert!(!Path::new(&control).exists());
}

#[test]
fn users_that_the_switch_cannot_become_are_refused() {
    require_root!();
    let _alone = alone();
    let folder = folder_of(65534, 65534);
    let control = folder.path().join("control").display().to_string();
    let start = |user: &str, own: Option<u32>| {
        let mut command = common::command();
        command.args(["switch", "--control", &control, "--user", user, "a=null:"]);
        if let Some(own) = own {
            command.uid(own).gid(own);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (user, own, part) in [
        (
            "nosuch",
            None,
            "--user nosuch: not in /etc/passwd; give a name in this file, or UID:GROUP",
        ),
        ("4242", None, "--user 4242: not in /etc/passwd; give its group: 4242:GROUP"),
        ("root:nosuch", None, "group nosuch: not in /etc/group"),
        ("a b", None, "allowed is USER or USER:GROUP"),
        ("root", Some(65534), "only root can run as another user, and this is user 65534"),
        ("4242:4243", Some(65534), "only root can run as another user"),
    ] {
        let (status, said) = start(user, own);
        assert_eq!((status, said.lines().count()), (Some(2), 1), "{user}: {said}");
        assert!(said.contains(part), "{user}: {said}");
    }
    // The capability for it is missing, as in a pod that has not asked for it.
    let (status, said) =
        without(libc::SYS_setgroups, libc::EPERM as u32, || start("4242:4243", None));
    assert_eq!(status, Some(1), "{said}");
    let parts = ["SETUID and SETGID", "--user root stays root"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    assert!(!Path::new(&control).exists());
    // The user itself may name itself, and needs no call that a supervisor forbids, as systemd's
    // units do.
    for call in [libc::SYS_setresuid, libc::SYS_setresgid, libc::SYS_setgroups] {
        let mut command = common::command();
        command.args(["switch", "--control", &control, "--user", "nobody", "a=null:"]);
        command.uid(65534).gid(65534).stderr(Stdio::piped());
        without(call, libc::EPERM as u32, || {
            let mut switch = Started(command.spawn().unwrap());
            let has_begun =
                eventually(|| listens(&control) || switch.0.try_wait().unwrap().is_some());
            let mut said = String::new();
            if switch.0.try_wait().unwrap().is_some() {
                switch.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            }
            assert!(has_begun && said.is_empty(), "{said}");
        });
    }
}

/// The kernel forgets the signal at a change of the user.
#[test]
fn switch_of_another_user_still_ends_with_its_parent() {
    require_root!();
    let _alone = alone();
    let folder = folder_of(USER, GROUP);
    let control = folder.path().join("control");
    // The shell is its parent, and ends.
    let script = format!(
        "setpriv --pdeathsig TERM {DRAY} switch --user 4242:4243 --control {0} a=null: & \
         until [ -S {0} ]; do sleep 0.1; done; kill -0 $! && sleep 1",
        control.display()
    );
    let mut shell = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap();
    assert!(eventually(|| listens(&control)));
    shell.wait().unwrap();
    assert!(eventually(|| !control.exists()), "it goes on, and its socket is there");
    chown(folder.path(), Some(0), None).unwrap();
}

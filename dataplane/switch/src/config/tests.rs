//! Whole configurations: valid ones round-trip, errors name the mistake.

use std::path::Path;

use proptest::prelude::*;

use super::*;

const CPUS: &[u32] = &[0, 1];

fn read(text: &str) -> Result<SwitchConfig, ConfigError> {
    let config = SwitchConfig::from_toml(text)?;
    config.check(CPUS).map_err(|error| error.find_line(text))?;
    Ok(config)
}

#[test]
fn file_with_every_key_round_trips() {
    let text = r#"
        mode = "learning"
        flow = "drop"
        cpus = [1, 0]
        idle = "never"
        age_s = 10
        table_size = 10000
        port_addresses = 100
        peer_memory = "512G"
        control = "/tmp/switch.sock"

        [[ports]]
        name = "a"
        uri = "raw:eth0?batch=64"
        vlan = 10
        group = "tenants"
        mac = ["52:54:00:00:00:01"]
        spoof_check = false
        rate_in = "10Gbit+1Mpps"
        rate_out = "1Gbit"
        storm = "1kpps"
        burst = "5ms"

        [[ports]]
        name = "b"
        uri = "null:"
        trunk = [10, 20]
        native = 1
    "#;
    let config = read(text).unwrap();
    assert_eq!((config.cpus.as_slice(), config.idle), (&[1, 0][..], Idle::Never));
    assert_eq!(config.ports[1].vlan.to_string(), "10+20, native 1");
    assert_eq!(read(&config.to_toml()), Ok(config));
    assert_eq!(
        read("control = '/tmp/x'").unwrap().to_toml().parse::<toml::Table>().unwrap().len(),
        8
    );
}

#[test]
fn empty_file_gives_defaults() {
    let config = SwitchConfig::from_toml("").unwrap();
    assert_eq!(config, SwitchConfig::default());
    assert_eq!(read(&config.to_toml()), Ok(config));
}

/// Each case: a file, the beginning of the message, and a part that it must contain.
#[test]
fn config_errors_name_line_key_and_value() {
    let port = |keys: &str| format!("mode = 'patch'\n[[ports]]\nname = 'a'\nuri = 'null:'\n{keys}");
    let mut wrong = Vec::new();
    for (text, start, part) in [
        ("mode = ", "line 1: ", "mode"),
        ("mode\n", "line 1: \"mode\": ", "key with no value"),
        ("x = [\n[[", "line ", ""),
        ("\nprots = []", "line 2: ", "unknown key \"prots\": did you mean ports?"),
        ("mode = 'swich'", "line 1: mode: ", "\"swich\": give one of patch, learning"),
        ("flow = 'stop'", "line 1: flow: ", "give one of drop, backpressure"),
        ("flow = 'backpressure'", "line 1: flow = ", "\"patch\""),
        ("idle = '50'", "line 1: idle: ", "\"50\": give a time"),
        ("idle = 50", "line 1: idle: ", "50"),
        ("age_s = 0", "line 1: age_s = 0: ", "1 to 32767"),
        ("age_s = 100000", "line 1: age_s: ", "100000"),
        ("table_size = 10", "line 1: table_size = 10: ", "8192 to 1048576"),
        ("port_addresses = 70000", "line 1: port_addresses = 70000: ", "1 to 65536"),
        ("peer_memory = '0'", "line 1: peer_memory = \"0\": ", "1 to 96T"),
        ("peer_memory = '97T'", "line 1: peer_memory = \"97T\": ", "1 to 96T"),
        ("peer_memory = '1.5G'", "line 1: peer_memory: ", "\"1.5G\" is not a number of bytes"),
        ("peer_memory = 5", "line 1: peer_memory: ", "5"),
        ("cpus = [0, 2]", "line 1: cpus = [0, 2]: ", "CPU 2 is not available; give some of 0, 1"),
        ("cpus = [0, 0]", "line 1: cpus = [0, 0]: ", "twice"),
        ("cpus = [-1]", "line 1: cpus[0]: ", "-1"),
        (
            "control = '/nosuch/x'",
            "line 1: control = \"/nosuch/x\"",
            "no such directory: \"/nosuch\"",
        ),
        ("control = \"/a\\nb/c\"", "line 1: control = ", "no such directory: \"/a\\nb\""),
        ("control = \"x\\u0000\"", "line 1: control = ", "path of a socket"),
        ("control = '/'", "line 1: control = \"/\"", "path of a socket"),
        (&format!("control = '/tmp/{}'", "x".repeat(103)), "line 1: control = ", "108 bytes"),
        ("[[ports]]\nname = 'a'", "line 1: ports[0]: ", "key \"uri\" is missing"),
        ("[[ports]]\nname = ''", "line 2: ports[0].name: ", "1 to 64"),
        ("[[ports]]\nname = 'a'\nuri = 'x:'", "line 3: ports[0].uri: ", "raw:eth0"),
        (&port("vlan = 0"), "line 5: ports[0].vlan: ", "VLAN 0: give 1 to 4094"),
        (&port("vlan = 70000"), "line 5: ports[0].vlan: ", "VLAN 70000: give 1 to 4094"),
        (&port("trunk = [1, 4095]"), "line 5: ports[0].trunk[1]: ", "VLAN 4095"),
        (&port("trunk = []"), "line 2: ports[0]: ", "trunk: give at least one"),
        (&port("native = 1"), "line 2: ports[0]: ", "give trunk as well"),
        (&port("vlan = 1\ntrunk = [2]"), "line 2: ports[0]: ", "one of them"),
        (&port("colour = 'red'"), "line 5: ports[0]", "unknown key \"colour\": give one of name"),
        (&port("vlan = 1"), "line 5: port \"a\": vlan: ", "only in mode \"learning\""),
        (&port("group = 'g'"), "line 5: port \"a\": group: ", "only in mode \"learning\""),
        (
            &port("mac = ['02:00:00:00:00:01']"),
            "line 5: port \"a\": mac: ",
            "only in mode \"learning\"",
        ),
        (&port("storm = '1kpps'"), "line 5: port \"a\": storm: ", "only in mode \"learning\""),
        (&port("mac = []"), "line 2: ports[0]: ", "mac: give at least one"),
        (&port("mac = ['02:00:00:00:00']"), "line 5: ports[0].mac[0]: ", "six hexadecimal octets"),
        (&port("mac = ['01:00:5e:00:00:01']"), "line 2: ports[0]: ", "a group address"),
        (&port("spoof_check = false"), "line 2: ports[0]: ", "spoof_check: give mac as well"),
        (&port("rate_in = '0pps'"), "line 5: ports[0].rate_in: ", "1pps to 1Gpps"),
        (&port("rate_out = '10'"), "line 5: ports[0].rate_out: ", "give frames or bits"),
        (&port("rate_out = 10"), "line 5: ports[0].rate_out: ", "10: give text in quotes"),
        (&port("burst = '10ms'"), "line 2: ports[0]: ", "give one of them"),
        (
            "[[ports]]\nname = 'a'\nuri = 'null:'\nmac = ['02:00:00:00:00:01']\n\
             [[ports]]\nname = 'b'\nuri = 'null:'\nmac = ['02:00:00:00:00:02', '02:00:00:00:00:01']",
            "line 8: port \"b\": mac: ",
            "02:00:00:00:00:01 is pinned to port \"a\"",
        ),
        (&port("pair = 'a'"), "line 5: port \"a\": pair = \"a\": ", "its own"),
        (&port("pair = 'b'"), "line 5: port \"a\": pair = \"b\": ", "no such port"),
        (&port("[[ports]]\nname = 'a'\nuri = 'null:'"), "line 6: port \"a\": ", "taken"),
        (
            "[[ports]]\nname = 'a'\nuri = 'raw:eth0'\n[[ports]]\nname = 'b'\nuri = 'afxdp:eth0'",
            "line 6: port \"b\": interface eth0 ",
            "already used by port \"a\"; give each port its own",
        ),
        ("control = '/tmp/x?mod=0660'", "line 1: control: ", "did you mean mode?"),
        (
            "[[ports]]\nname = 'a'\nuri = 'null:'\npair = 'b'",
            "line 4: port \"a\": pair: ",
            "only in mode \"patch\"",
        ),
    ] {
        let message = read(text).unwrap_err().to_string();
        if !message.starts_with(start) || !message.contains(part) || message.contains('\n') {
            wrong.push(format!("{text}\n  {message}\n  should be {start}... {part}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn only_errors_in_the_file_name_it() {
    let load = |path: &Path, flow| {
        SwitchConfig::load(path, |config| config.flow = flow, CPUS).map_err(|e| e.to_string())
    };
    let message = load("/nosuch.toml".as_ref(), Flow::Drop).unwrap_err();
    assert!(message.starts_with("/nosuch.toml: "), "{message}");

    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path();
    std::fs::write(path, "control = 'x'\nage_s = 7").unwrap();
    assert_eq!(load(path, Flow::Drop).unwrap().age_s, 7);
    let message = load(path, Flow::Backpressure).unwrap_err();
    assert!(message.starts_with("flow = \"backpressure\""), "{message}");
    for text in ["control = 'x'\nage_s = 0", "control = 'x'\nage_s = 'x'"] {
        std::fs::write(path, text).unwrap();
        let message = load(path, Flow::Drop).unwrap_err();
        assert!(message.starts_with(&format!("{}: line 2: age_s", path.display())), "{message}");
    }
}

proptest! {
    #[test]
    fn arbitrary_text_parses_or_is_refused(
        text in "([a-z_]{1,6} = (\"\\PC{0,6}\"|[0-9]{1,5}|\\[[0-9, ]{0,6}\\])\n|\\[\\[ports\\]\\]\n){0,8}|\\PC{0,60}",
    ) {
        if let Ok(config) = read(&text) {
            prop_assert_eq!(read(&config.to_toml()), Ok(config));
        }
    }
}

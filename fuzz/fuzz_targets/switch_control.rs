//! Untrusted requests at the control socket of a switch: a refused request changes nothing, and the
//! configuration that the switch reports can start another switch.
#![no_main]

use std::collections::HashSet;
use std::io::{self, Cursor, Read, Write};

use dray_daemon::{BODY_MAX, Request, read_request};
use dray_switch::apply::Configuration;
use dray_switch::config::from_json;
use dray_switch::{SwitchControl, PortConfig, Switch, SwitchConfig, api};
use libfuzzer_sys::fuzz_target;

/// Number of ports that a run may add: each is polled by threads of the switch.
const PORTS: usize = 8;

struct Bytes<'a>(Cursor<&'a [u8]>);

impl Read for Bytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces the request's ports by some that open nothing on this machine.
fn harmless(mut request: Request) -> Request {
    if let Ok(mut port) = from_json::<PortConfig>(&request.body) {
        port.uri = "null:".parse().expect("a port");
        request.body = serde_json::to_vec(&port).expect("a port has a form in JSON");
    }
    let text = String::from_utf8_lossy(&request.body);
    if let Ok(mut config) = SwitchConfig::from_toml(&text) {
        config.ports.truncate(PORTS);
        config.ports.iter_mut().for_each(|port| port.uri = "null:".parse().expect("a port"));
        request.body = config.to_toml().into();
    }
    request
}

thread_local! {
    static SWITCH: (Switch, Configuration) = {
        let config = SwitchConfig { cpus: vec![0], ..SwitchConfig::default() };
        let switch = Switch::start(&config).expect("a switch");
        (switch, Configuration::new(config, Vec::new()))
    };
}

fuzz_target!(|bytes: &[u8]| {
    SWITCH.with(|(switch, config)| {
        for bytes in bytes.split(|byte| *byte == 0) {
            let Ok(request) = read_request(&mut Bytes(Cursor::new(bytes)), BODY_MAX) else {
                continue;
            };
            let (before, is_get) = (switch.ports(), request.method == "GET");
            if before.len() >= PORTS && request.method == "POST" {
                continue;
            }
            let response = api::answer(switch, config, harmless(request));
            let ports = switch.ports();
            if response.status >= 300 || is_get {
                assert_eq!(ports.len(), before.len(), "{bytes:?}");
            }
            let names: HashSet<_> = ports.iter().map(|port| port.config.name.as_str()).collect();
            assert_eq!(names.len(), ports.len());
            let request =
                Request { method: "GET".into(), path: "/config".into(), ..Request::default() };
            let again = String::from_utf8(api::answer(switch, config, request).body).expect("text");
            let read = SwitchConfig::from_toml(&again).expect("a written configuration is valid");
            assert_eq!(read.to_toml(), again);
            assert_eq!(read.check(&[0]), Ok(()), "{read:?}");
        }
        for port in switch.ports() {
            switch.remove_port(port.config.name.as_str()).expect("the port exists");
        }
    });
});

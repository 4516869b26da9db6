//! Untrusted requests at the control socket of a user plane function: a refused request changes
//! nothing, and an accepted one leaves tables in which each address and each tunnel has one owner.
#![no_main]

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Instant;

use dray_daemon::Request;
use dray_port::memory::Peer;
use dray_upf::{Operation, Upf, UpfConfig, Worker, api};
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = r#"
sessions_max = 8
n3 = { mac = "02:00:00:00:03:01", addresses = ["10.0.3.1", "fd00:3::1"] }
n6 = { mac = "02:00:00:00:06:01", addresses = ["10.0.6.1", "fd00:6::1"] }
applications = [ { name = "video", servers = ["198.51.100.0/24"], ports = [443] } ]
"#;

/// A valid transaction, the first input.
const SEED: &[u8] = br#"{"remove":[1],"end_marker":true,"modify":[{"seid":2,"ue":["10.45.0.2"],
"pdrs":[{"id":1,"precedence":9,"from":"access","teid":2,"far":1}],"fars":[{"id":1,"action":"drop"}]}],
"add":[{"seid":3,"ue":["10.45.0.3","2001:db8:3::/64"],
"pdrs":[{"id":1,"precedence":9,"from":"access","teid":3,"far":1,"qfis":[9],"tos":[1,255],
"filters":["permit out 17 from 203.0.113.0/24 80,90-99 to assigned"]},
{"id":2,"precedence":9,"from":"core","far":2,"qers":[1],"urrs":[1],"application":"video"}],
"fars":[{"id":1,"action":"forward"},
{"id":2,"action":"forward","tunnel":{"gnb":"10.0.3.2","teid":7}}],
"qers":[{"id":1,"qfi":9,"mbr_uplink_kbps":100}],"urrs":[{"id":1,"quota":{"total":5}}]}]}"#;

struct Served {
    upf: Upf,
    workers: [Worker; 2],
    started: Instant,
}

thread_local! {
    static SERVED: RefCell<Served> = RefCell::new({
        let config = UpfConfig::from_toml(CONFIG).expect("right");
        let (n3, n6) = (Peer::default().port(), Peer::default().port());
        let (upf, workers) = Upf::new(&config, n3, n6).expect("right");
        Served { upf, workers, started: Instant::now() }
    });
}

/// Builds a valid body with some bytes changed, or a body of any bytes.
fn body(bytes: &[u8]) -> Vec<u8> {
    match bytes.split_first() {
        Some((&changes @ 1..16, rest)) => {
            let mut body = SEED.to_vec();
            for change in rest.chunks_exact(3).take(changes.into()) {
                let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % body.len();
                body[at] = change[2];
            }
            body
        }
        _ => bytes.to_vec(),
    }
}

fuzz_target!(|requests: Vec<(u8, Vec<u8>)>| {
    SERVED.with_borrow_mut(|Served { upf, workers, started }| {
        for (kind, bytes) in requests {
            let (method, path) = match kind % 8 {
                0 => ("GET", "/sessions"),
                1 => ("GET", "/sessions/3"),
                2 => ("GET", "/stats"),
                _ => ("POST", "/sessions"),
            };
            let before = upf.sessions();
            let request = Request {
                method: method.to_owned(),
                path: path.to_owned(),
                body: body(&bytes),
                ..Request::default()
            };
            let status = api::answer(upf, *started, &request).status;
            assert!([200, 204, 400, 404].contains(&status), "{status}");
            let sessions = upf.sessions();
            if status != 204 {
                assert_eq!(sessions, before);
            }
            let teids: Vec<_> = sessions.iter().flat_map(|session| &session.teids).collect();
            let users: Vec<_> = sessions.iter().flat_map(|session| &session.ue).collect();
            assert_eq!(teids.iter().collect::<HashSet<_>>().len(), teids.len());
            assert_eq!(users.iter().collect::<HashSet<_>>().len(), users.len());
            workers.iter_mut().for_each(|worker| _ = worker.poll().expect("memory"));
        }
        let all = upf.sessions();
        let remove: Vec<_> = all.iter().map(|session| Operation::Remove(session.seid)).collect();
        upf.apply(&remove).expect("the sessions exist");
        workers.iter_mut().for_each(|worker| _ = worker.poll().expect("memory"));
    });
});

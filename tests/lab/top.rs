//! `dray lab top`: rates at the ends of links, as JSON and on a page in a browser.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{self, Started, alone, eventually, success};
use crate::standing::Up;

/// Starts a sender of 2000 frames a second in the container `sender` of a lab.
fn send(lab: &str) -> Started {
    let mut command = common::command();
    command.args(["lab", "exec", "--lab", lab, "sender", "--", "dray", "send"]);
    command.args(["--port", "raw:eth0", "--rate", "2k", "--duration", "60"]);
    Started(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("dray starts"))
}

#[test]
fn page_shows_rates_with_browser() {
    require_root!();
    let browser = browser!();
    let _alone = alone();
    let lab = Up::example("casoni2013-fan");
    let name = lab.0.clone();
    let mut top = common::command();
    top.args(["lab", "top", &name, "--web", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut top = Started(top.spawn().expect("dray starts"));
    let mut line = String::new();
    BufReader::new(top.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("text");
    let url = line.split(' ').find(|word| word.starts_with("http://")).expect("an address");
    let _sender = send(&name);

    browser.run(&format!("location = {url:?}"));
    let edge = |end: &str, class: &str| {
        let script = format!(
            "return document.querySelector('.edge[data-end=\"{end}\"] .{class}')?.textContent ?? ''"
        );
        browser.text(&script)
    };
    assert!(eventually(|| edge("sender:eth0", "right").contains("k →")), "{line}");
    assert!(eventually(|| edge("receiver:eth0", "right").contains("k →")));
    assert_eq!(
        (edge("sender:eth1", "right"), edge("sender:eth0", "left")),
        ("0 →".into(), "← 0".into())
    );
    assert_eq!(browser.number("return document.querySelectorAll('.edge').length"), 12.0);
    assert_eq!(browser.number("return document.querySelectorAll('tbody tr').length"), 12.0);
    if let Ok(folder) = std::env::var("DRAY_SCREENSHOTS") {
        for scheme in ["light", "dark"] {
            let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
            browser.devtools("Emulation.setEmulatedMedia", &media);
            let shot = browser.devtools("Page.captureScreenshot", &json!({}));
            let base64 = shot["data"].as_str().expect("a picture");
            std::fs::write(format!("{folder}/lab-top-{scheme}.base64"), base64).expect("a folder");
        }
    }
    // Nothing comes from elsewhere.
    let origin = format!("\"{url}");
    assert!(browser.requests().iter().all(|address| address.starts_with(&origin)));
    assert_eq!(browser.console(), Vec::<String>::new());

    lab.down();
    let about = || browser.text("return document.getElementById('about').textContent");
    assert!(eventually(|| about().contains("waiting for it to come back")), "{}", about());
    common::signal(&top.0, Signal::INT);
    assert!(top.0.wait().expect("our child").success());
}

#[test]
fn rates_of_interfaces_and_of_the_links_own_switch_are_json() {
    require_root!();
    let _alone = alone();
    for (kind, program) in [("veth", "raw:eth0"), ("switch/patch", "$PORT0")] {
        let lab = Up::text(
            &format!(
                "containers = [{{ name = 'sender', run = 'dray send --port {program} --rate 2k \
                 --duration 60' }}, {{ name = 'b', run = 'dray receive --port {program}' }}]\n\
                 links = [{{ kind = '{kind}', ends = ['sender', 'b'] }}]\n"
            ),
            "rates",
        );
        let json = success(&["lab", "top", &lab.0, "--once", "--json"]);
        let rates: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(rates["program"], "lab");
        let ports = rates["ports"].as_array().expect("ports");
        let rate = |container: &str, way: &str| {
            let name =
                |port: &&Value| port["name"].as_str().is_some_and(|it| it.starts_with(container));
            let port = ports.iter().find(name).unwrap_or_else(|| panic!("{json}"));
            port[way]["frames_per_s"].as_f64().expect("a number")
        };
        for rate in [rate("sender:", "tx"), rate("b:", "rx")] {
            assert!((500.0..=4000.0).contains(&rate), "{kind}: {rate}: {json}");
        }
        assert!(rate("b:", "tx") < 100.0 && rate("sender:", "rx") < 100.0, "{json}");
        lab.down();
    }
}

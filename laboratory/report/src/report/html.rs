//! A report as one self-contained HTML page: styles, script and charts are inline.

use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

use crate::report::Report;

const PAGE: &str = include_str!("../../assets/page.html");
const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// Output of `openssl dgst -sha256 -binary laboratory/report/assets/page.js | base64`: the hash of the
/// only script that browsers may run in the page. If it is wrong, the browser test prints the right
/// one.
const SCRIPT_SHA256: &str = "PYXGXGTbYrbPh2YV8dPZuWFoK8ddCLXPMdkQj49f1XE=";
impl Report {
    /// Renders one self-contained HTML page.
    pub fn html(&self) -> String {
        render(self)
    }
}

fn render(report: &Report) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    let page = environment.template_from_str(PAGE).expect("valid template");
    let techniques: Vec<_> = report.techniques.iter().collect();
    let mut families: Vec<Family> = Vec::new();
    for (number, technique) in techniques.iter().enumerate() {
        let entry = Entry { number, name: &technique.name, colour: technique.colour };
        match families.iter_mut().find(|family| family.name == technique.family) {
            Some(family) => family.techniques.push(entry),
            None => families.push(Family { name: &technique.family, techniques: vec![entry] }),
        }
    }
    let text = page.render(context! {
        style => STYLE,
        script => SCRIPT,
        script_hash => SCRIPT_SHA256,
        families,
        technique_count => techniques.len(),
        sizes => report.sizes,
        hosts => report.hosts,
        results => report.runs.iter().map(|run| run.results.results.len()).sum::<usize>(),
        runs => report.runs.len(),
    });
    text.expect("context has every template variable")
}

/// Techniques of one kind of link, for the filter.
#[derive(Serialize)]
struct Family<'a> {
    name: &'a str,
    techniques: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    number: usize,
    name: &'a str,
    colour: usize,
}

//! A report as one self-contained HTML page: styles, script and charts are inline.

use minijinja::context;
use serde::Serialize;

use crate::report::Report;
use crate::technique::Technique;
use crate::template;

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
    let mut families: Vec<Family> = Vec::new();
    for technique in report.techniques.iter() {
        match families.iter_mut().find(|family| family.name == technique.family) {
            Some(family) => family.techniques.push(technique),
            None => families.push(Family { name: &technique.family, techniques: vec![technique] }),
        }
    }
    let data = context! {
        style => STYLE,
        script => SCRIPT,
        script_hash => SCRIPT_SHA256,
        families,
        technique_count => report.techniques.iter().count(),
        sizes => report.sizes,
        hosts => report.hosts,
        results => report.runs.iter().map(|run| run.results.results.len()).sum::<usize>(),
        runs => report.runs.len(),
    };
    template::render("page.html", data)
}

/// Techniques of one kind of link, for the filter.
#[derive(Serialize)]
struct Family<'a> {
    name: &'a str,
    techniques: Vec<&'a Technique>,
}

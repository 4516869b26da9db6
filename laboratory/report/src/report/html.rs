//! A report as one self-contained HTML page: styles, script and charts are inline.

use minijinja::context;

use crate::distinct::grouped;
use crate::report::Report;
use crate::template;

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// Output of `openssl dgst -sha256 -binary laboratory/report/assets/page.js | base64`: the hash of
/// the only script that browsers may run in the page. If it is wrong, the browser test prints the
/// right one.
const SCRIPT_SHA256: &str = "PYXGXGTbYrbPh2YV8dPZuWFoK8ddCLXPMdkQj49f1XE=";
impl Report {
    /// Renders one self-contained HTML page.
    pub fn html(&self) -> String {
        // Techniques by kind of link, for the filter.
        let families =
            grouped(self.techniques.iter().map(|technique| (&technique.family, technique)));
        let data = context! {
            style => STYLE,
            script => SCRIPT,
            script_hash => SCRIPT_SHA256,
            families,
            technique_count => self.techniques.iter().count(),
            sizes => self.sizes,
            hosts => self.hosts,
            results => self.runs.iter().map(|run| run.results.results.len()).sum::<usize>(),
            runs => self.runs.len(),
        };
        template::render("page.html", data)
    }
}

//! Dumps every rendering of result files; for comparison.
use dray_report::{Report, Run, table};
use std::fs;
fn main() {
    let mut args = std::env::args().skip(1);
    let out = args.next().unwrap();
    fs::create_dir_all(&out).unwrap();
    for file in args {
        let name = file.rsplit('/').next().unwrap().to_owned();
        let run = Run::read(file.as_ref()).unwrap();
        fs::write(format!("{out}/{name}.table"), table::render(&run.results)).unwrap();
        let report = Report::new(vec![run]);
        fs::write(format!("{out}/{name}.html"), report.html()).unwrap();
        fs::write(format!("{out}/{name}.md"), report.markdown()).unwrap();
        fs::write(format!("{out}/{name}.text"), report.text()).unwrap();
        fs::write(format!("{out}/{name}.csv"), report.csv()).unwrap();
    }
}

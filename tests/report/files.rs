//! Files that `dray report` and `dray compare` read and write.

use std::fs;
use std::path::PathBuf;

use crate::browser::RESULTS;
use crate::common::{alone, assert_schema, dray, success};
use crate::pages_with_browser::{ALL, results};
use serde_json::{Value, json};

#[test]
fn result_files_match_the_schema() {
    let files: Vec<PathBuf> =
        fs::read_dir(RESULTS).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > ALL.len(), "{files:?}");
    for file in files {
        println!("{}", file.display());
        assert_schema(&serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap());
    }
}

#[test]
fn export_formats_hold_same_figures() {
    let (rtt, sockets) = (results("rtt"), results("sockets"));
    let markdown = success(&["report", &rtt, &sockets, "--format", "markdown"]);
    for part in ["## ", "| Latency (", "#### Round-trip times", "| technique | size, B |"] {
        assert!(markdown.contains(part), "{part}: {markdown}");
    }
    let csv = success(&["report", &rtt, &sockets, "--format", "csv"]);
    let lines = |file: &str| -> usize {
        let results: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        results["results"].as_array().unwrap().len()
    };
    assert_eq!(csv.lines().count(), 1 + lines(&rtt) + lines(&sockets));
    let folder = tempfile::tempdir().unwrap();
    let by_name = folder.path().join("report.md");
    success(&["report", &rtt, &sockets, "-o", by_name.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&by_name).unwrap(), markdown);
    assert!(success(&["report", &rtt]).starts_with("<!doctype html>"));
}

#[test]
fn invalid_result_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    fs::write(&page, "what was there").unwrap();
    let good = fs::read_to_string(results("rtt")).unwrap();
    let wrong = folder.path().join("wrong.json");
    for (text, what) in [
        (&good[..good.len() / 2], "cut short"),
        ("<html>", "not JSON"),
        ("", "empty file"),
        (
            &good.replacen("\"schema\":1", "\"schema\":2", 1),
            "schema version 2; this dray reads version 1",
        ),
        (&good.replacen("\"technique\"", "\"technik\"", 1), "results[0]"),
    ] {
        fs::write(&wrong, text).unwrap();
        let output = dray(&[
            "report",
            &results("rtt"),
            wrong.to_str().unwrap(),
            "-o",
            page.to_str().unwrap(),
        ]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("wrong.json") && message.contains(what), "{what}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(fs::read_to_string(&page).unwrap(), "what was there");
        let output = dray(&["compare", &results("rtt"), wrong.to_str().unwrap()]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{what}");
    }
    // The command's own input, and a path that cannot be written.
    fs::write(&wrong, &good).unwrap();
    let own = wrong.to_str().unwrap();
    let output = dray(&["report", own, "-o", own]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&wrong).unwrap(), good);
    let output = dray(&["report", own, "-o", "/nosuch/page.html"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("-o /nosuch/page.html"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left over");
}

#[test]
fn comparison_names_incomparable_rows() {
    let folder = tempfile::tempdir().unwrap();
    let before = results("switches");
    let mut faster: Value = serde_json::from_str(&fs::read_to_string(&before).unwrap()).unwrap();
    faster["host"]["kernel"] = json!("99.9");
    let rows = faster["results"].as_array_mut().unwrap();
    let row = rows.iter_mut().find(|row| row["received_pps"].is_number()).unwrap();
    let name = format!("{} {} B", row["technique"].as_str().unwrap(), row["frame_size"]);
    row["received_pps"] = json!(row["received_pps"].as_f64().unwrap() * 10.0);
    let samples = row["samples_pps"].as_array_mut().unwrap();
    samples.iter_mut().for_each(|sample| *sample = json!(sample.as_f64().unwrap() * 10.0));
    let after = folder.path().join("after.json");
    fs::write(&after, faster.to_string()).unwrap();
    let after = after.to_str().unwrap();

    let same = success(&["compare", &before, &before]);
    assert!(same.contains("B is faster in 0, slower in 0;"), "{same}");
    let text = success(&["compare", &before, after]);
    assert!(text.contains("B is faster in 1, slower in 0;"), "{text}");
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    assert!(line.contains("+900.0 %") && line.ends_with("faster"), "{line}");
    let warning = "Warning: measured on different hosts";
    let warning = text.lines().find(|line| line.starts_with(warning)).unwrap();
    assert!(warning.contains("99.9"), "{warning}");
    let json: Value =
        serde_json::from_str(&success(&["compare", &before, after, "--json"])).unwrap();
    let verdicts =
        json["rows"].as_array().unwrap().iter().map(|row| row["verdict"].as_str().unwrap());
    assert_eq!(verdicts.filter(|verdict| *verdict == "faster").count(), 1);

    let output = dray(&["compare", &before, &results("rtt")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no row in common"));
}

#[test]
fn bench_writes_a_report_of_what_it_measured() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let wrong = dray(&["bench", "--json", "-", "--report", "-"]);
    assert_eq!(wrong.status.code(), Some(2));
    let arguments =
        ["bench", "--quick", "--duration", "0.5", "--technique", "veth/udp", "--size", "64"];
    let table = success(&[&arguments[..], &["--report", page.to_str().unwrap()]].concat());
    assert!(table.contains("veth/udp"), "{table}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<p class=\"best\">veth/udp</p>"), "the answer is in the page");
}

//! Pages of `dray report` in a real browser.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::{self, Browser, RESULTS};
use crate::common::{alone, success};
use serde_json::{Value, json};

/// Path of the measured results with this name.
pub(crate) fn results(name: &str) -> String {
    format!("{RESULTS}/{name}.json")
}

pub(crate) const ALL: [&str; 6] = ["sockets", "switches", "rates", "sizes", "chain", "rtt"];

/// Creates a page of the results with these names.
fn page(folder: &Path, names: &[&str]) -> PathBuf {
    browser::page(folder, names.iter().map(|name| results(name)))
}

/// Returns the number of visible elements.
fn seen(browser: &Browser, selector: &str) -> f64 {
    browser.number(&format!(
        "return [...document.querySelectorAll({selector:?})].filter((it) => it.getClientRects().length).length"
    ))
}

#[test]
fn charts_draw_without_network_requests() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), &ALL);
    browser.open(&page);
    let titles = browser.text(
        "return [...document.querySelectorAll('figure h3')].map((it) => it.textContent).join('; ')",
    );
    for title in [
        "Highest receive rate;",
        "Received against offered rate, 64 B",
        "Highest receive rate against frame size",
        "Chains of forwarders",
        "Round-trip times",
        "What a frame costs",
    ] {
        assert!(format!("{titles};").contains(title), "{title} is not in {titles}");
    }
    // Each figure has marks inside its own bounds, and a table row for every result.
    let empty = browser.text(
        "return [...document.querySelectorAll('figure')].filter((figure) => {
           const box = figure.getBoundingClientRect();
           const marks = [...figure.querySelectorAll('[data-mark] circle, [data-mark] rect')];
           const inside = marks.filter((mark) => {
             const at = mark.getBoundingClientRect();
             return at.width > 0 && at.left >= box.left - 6 && at.right <= box.right + 6;
           });
           const bars = [...figure.querySelectorAll('rect')].length;
           return marks.length === 0 || (bars === 0 && inside.length !== marks.length)
             || figure.querySelectorAll('tbody tr').length === 0;
         }).map((figure) => figure.querySelector('h3').textContent).join('; ')",
    );
    assert_eq!(empty, "");
    let questions = browser
        .text("return [...document.querySelectorAll('.answer h3')].map((it) => it.textContent).join('; ')");
    assert_eq!(questions, "Small frames; Large frames; Latency; Unmodified programs; Fewest cores");
    assert_eq!(seen(&browser, ".plot .end text"), seen(&browser, ".plot .series[data-t]"));
    browser.assert_quiet(&page);
}

#[test]
fn filters_apply_to_charts_and_tables() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), &ALL);
    browser.open(&page);
    browser.run("for (const it of document.querySelectorAll('details.table')) it.open = true;");
    let technique = browser.text(
        "return [...document.querySelectorAll('.choices input[name=t]')]
           .find((it) => it.parentNode.textContent.trim() === 'switch/patch').value",
    );
    let mine = format!("main [data-t='{technique}']");
    let (before, all) = (seen(&browser, &mine), seen(&browser, "main [data-t]"));
    assert!(before > 3.0 && all > before, "{before} of {all}");
    let click =
        |selector: &str| browser.run(&format!("document.querySelector({selector:?}).click()"));
    click(&format!(".choices input[value='{technique}']"));
    assert_eq!((seen(&browser, &mine), seen(&browser, "main [data-t]")), (0.0, all - before));
    let chosen = browser.text("return document.getElementById('chosen').textContent");
    assert!(chosen.contains(" of "), "{chosen}");
    // The technique's family is partly selected; clicking its box selects all of it again.
    assert_eq!(
        browser.run(
            "const it = [...document.querySelectorAll('[data-family]')].find((it) => it.indeterminate);
             const name = it.parentNode.textContent.trim(); it.click(); return name;"
        ),
        "switch"
    );
    assert_eq!(seen(&browser, "main [data-t]"), all);

    assert!(seen(&browser, "main [data-s='1500']") > 0.0);
    click(".sizes input[value='1500']");
    assert_eq!(seen(&browser, "main [data-s~='1500']"), 0.0);
    assert!(seen(&browser, "main [data-s='64']") > 0.0);
    click("[data-all='']");
    assert_eq!(seen(&browser, "main [data-t]"), 0.0);
    click("[data-all='1']");
    click(".sizes input[value='1500']");
    assert_eq!(seen(&browser, "main [data-t]"), all);
    browser.assert_quiet(&page);
}

#[test]
fn tooltip_shows_value_for_mouse_and_keyboard() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), &["sockets", "chain"]);
    browser.open(&page);
    let tip =
        "const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent;";
    assert_eq!(browser.text(tip), "");
    for mark in ["figure .row .dot", ".plot [data-mark] .dot"] {
        browser.point_at(mark);
        // The mark of a disturbed figure is explained in its last line.
        let text = browser.text(tip).replace("pps~", "pps");
        for part in [" B\n", "pps ±", "lost ", "cores busy", "bursts of ", "CPU: "] {
            assert!(text.contains(part), "{mark}: {part:?} is not in {text:?}");
        }
    }
    browser.point_at("h1");
    assert_eq!(browser.text(tip), "");
    browser.run("document.querySelector('.plot').focus({preventScroll: true})");
    browser.press("\u{e014}");
    let first = browser.text(tip);
    browser.press("\u{e014}");
    let second = browser.text(tip);
    assert!(!first.is_empty() && !second.is_empty() && first != second, "{first:?} {second:?}");
    browser.press("\u{e00c}");
    assert_eq!(browser.text(tip), "");
    browser.assert_quiet(&page);
}

#[test]
fn report_is_readable_dark_phone_and_paper() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), &ALL);
    let feature = |name: &str, value: &str| json!([{"name": name, "value": value}]);
    let paper = "return getComputedStyle(document.body).backgroundColor";
    let emulate = |media: &str, scheme: &str| {
        let features = feature("prefers-color-scheme", scheme);
        browser
            .devtools("Emulation.setEmulatedMedia", &json!({"media": media, "features": features}));
    };
    emulate("screen", "light");
    browser.open(&page);
    let light = browser.text(paper);
    emulate("screen", "dark");
    let dark = browser.text(paper);
    assert_ne!(light, dark);
    browser.run("document.getElementById('theme').click()");
    assert_eq!(browser.text(paper), light, "the switch overrules the system");
    browser.run("document.getElementById('theme').click()");
    assert_eq!(browser.text(paper), dark);

    emulate("print", "dark");
    assert_eq!(browser.text(paper), light, "paper is white");
    assert_eq!(
        seen(&browser, "tbody tr"),
        browser.number("return document.querySelectorAll('tbody tr').length")
    );
    assert_eq!(seen(&browser, "#filter") + seen(&browser, "#theme"), 0.0);

    emulate("screen", "light");
    let phone = json!({"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true});
    browser.devtools("Emulation.setDeviceMetricsOverride", &phone);
    assert_eq!(browser.number("return document.documentElement.scrollWidth"), 390.0);
    assert!(browser.number("return document.querySelector('.plot > svg').clientWidth") > 250.0);
    assert!(seen(&browser, ".legend li") > 0.0, "lines are named below the chart");
    assert_eq!(seen(&browser, ".plot .end text"), 0.0);
    browser.assert_quiet(&page);
}

#[test]
fn full_report_is_small_and_fast() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    // More results than all papers' experiments and all techniques produce: a hundred of each kind
    // measured here.
    const EACH: usize = 110;
    let files = ALL.map(|name| {
        let mut all: Value =
            serde_json::from_str(&fs::read_to_string(results(name)).unwrap()).unwrap();
        let rows = all["results"].as_array().unwrap().clone();
        let rename = |(number, row): (usize, &Value)| {
            let mut row = row.clone();
            let copy = number / rows.len();
            row["technique"] = json!(format!("{}-{copy}", row["technique"].as_str().unwrap()));
            row
        };
        all["results"] = rows.iter().cycle().take(EACH).enumerate().map(rename).collect();
        let file = folder.path().join(format!("{name}.json"));
        fs::write(&file, all.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    });
    let page = folder.path().join("page.html");
    let mut arguments = vec!["report", "-o", page.to_str().unwrap()];
    arguments.extend(files.iter().map(String::as_str));
    success(&arguments);
    let bytes = fs::metadata(&page).unwrap().len();
    assert!(bytes < 2_000_000, "{bytes} bytes");
    // The best of three: other programs may use the machine meanwhile.
    let opened = (0..3).map(|_| {
        browser.open(&page);
        browser.number("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    });
    let best = opened.fold(f64::INFINITY, f64::min);
    assert!(best > 0.0 && best < 2000.0, "{best} ms");
}

/// Puts `text` wherever a result file may have text.
fn everywhere(value: &mut Value, text: &str) {
    match value {
        Value::String(own) => text.clone_into(own),
        Value::Array(items) => items.iter_mut().for_each(|item| everywhere(item, text)),
        Value::Object(fields) => {
            if let Some(roles) = fields.get_mut("role_cores") {
                *roles = json!({ text: 0 });
            }
            // These are one of a few words each.
            let free = fields
                .iter_mut()
                .filter(|(key, _)| !["distance", "of_run", "limited_by"].contains(&key.as_str()));
            free.for_each(|(_, item)| everywhere(item, text));
        }
        _ => {}
    }
}

#[test]
fn hostile_results_cannot_inject_html() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let evil = "</title></script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>\
                \"'`{{7*7}}\" onmouseover=\"window.evil = 1";
    let file = folder.path().join("evil.json");
    let page = folder.path().join("page.html");
    for name in ALL {
        let mut evil_results: Value =
            serde_json::from_str(&fs::read_to_string(results(name)).unwrap()).unwrap();
        let own = evil_results.clone();
        everywhere(&mut evil_results, evil);
        // Keep what decides which charts the page has.
        evil_results["table"]["layout"] = own["table"]["layout"].clone();
        let rows = evil_results["results"].as_array_mut().unwrap().iter_mut();
        for (row, own) in rows.zip(own["results"].as_array().unwrap()) {
            for field in ["topology", "check"] {
                if let Some(own) = own.get(field) {
                    row[field] = own.clone();
                }
            }
        }
        fs::write(&file, evil_results.to_string()).unwrap();
        success(&["report", file.to_str().unwrap(), "-o", page.to_str().unwrap()]);
        browser.open(&page);
        assert_eq!(browser.run("return window.evil ?? null"), Value::Null, "{name}");
        assert_eq!(browser.run("return document.scripts.length"), 1, "{name}");
        assert_eq!(browser.run("return document.images.length"), 0, "{name}");
        assert_eq!(
            browser.run("return document.querySelectorAll('[onmouseover]').length"),
            0,
            "{name}"
        );
        let shown = browser.text("return document.body.textContent");
        assert!(shown.contains("<script>window.evil = 1</script>"), "{name}: shown as it is");
        assert!(shown.contains("{{7*7}}"), "{name}");
        assert!(seen(&browser, "figure") > 0.0, "{name}");
        browser.point_at("figure .dot, figure rect");
        browser.assert_quiet(&page);
    }
}

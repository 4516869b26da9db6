//! Every kind of chart, drawn from real measurements in a real browser: marks match the figures in
//! the table, nothing overlaps, and every mark can be filtered and pointed at.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::{self, Browser, RESULTS};
use crate::common::alone;
use serde_json::{Value, json};

/// Titles of all kinds of charts, or their first words.
const KINDS: [&str; 18] = [
    "Highest rate within a given loss",
    "Highest receive rate",
    "Receive rate",
    "Received against offered rate",
    "Highest receive rate against frame size",
    "Chains of forwarders",
    "Throughput against pairs",
    "Throughput",
    "Throughput per core of the user plane function",
    "Rate against sessions",
    "Rate against rules",
    "One-way times",
    "Round-trip times",
    "One-way times against load",
    "Round-trip times against load",
    "What techniques need",
    "What a frame costs",
    "Isolation",
];

/// Shared functions of the scripts: how to read numbers, and the values of each mark of a chart.
const COMMON: &str = r#"
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const seen = (it) => it.getClientRects().length > 0;
const base = {Mpps: 1e6, kpps: 1e3, "Gb/s": 1e9, "Mb/s": 1e6, s: 1e9, ms: 1e6, "µs": 1e3};
const factor = (unit) => base[unit.trim()] ?? 1;
const percent = (it, name) => parseFloat(it.getAttribute(name));
// Values in base units by their place, from the values that are written beside an axis.
function axis(texts, place, unit) {
  const ticks = texts.map((it) => [percent(it, place), parseFloat(it.textContent) * factor(unit)]);
  const [[p, a], [q, b]] = [ticks[0], ticks.at(-1)];
  const linear = (at) => a + (b - a) * (at - p) / (q - p);
  const log = (at) => a * (b / a) ** ((at - p) / (q - p));
  const off = (scale) => Math.max(0, ...ticks.map(([at, value]) => Math.abs(scale(at) / value - 1)));
  const scale = a <= 0 || b <= 0 || off(linear) < off(log) ? linear : log;
  return (at) => ({value: scale(at), near: scale === log ? 0 : Math.abs(b - a) * 3e-4});
}
const close = ({value, near}, other) =>
  Math.abs(value - other) <= near + 0.02 * Math.max(Math.abs(value), Math.abs(other));
// Numbers in a text, in base units where it says the unit.
const numbers = (text, unit) => [...text.matchAll(/(\d[\d.]*(?:e-?\d+)?) ?([A-Za-zµ]+(?:\/s)?)?/g)]
  .map(([, number, own]) => parseFloat(number) * factor(unit ?? own ?? ""));
// Each mark with the values that it stands for.
function marks(figure) {
  const found = [];
  for (const panel of all(".panel", figure)) {
    const unit = panel.querySelector(".unit").textContent;
    const x = axis(all(".axis text", panel), "x", unit);
    for (const row of all(".row", panel)) {
      const dot = row.querySelector(".dot") ?? all(".bar", row).at(-1);
      const at = dot.matches(".bar") ? percent(dot, "x") + percent(dot, "width") : percent(dot, "cx");
      const said = parseFloat(row.querySelector(".value").textContent) * factor(unit);
      found.push({row, dot, values: [x(at)], said, t: row.dataset.t});
    }
  }
  for (const plot of all(".plot", figure)) {
    const unit = (selector) => plot.querySelector(selector).textContent.split(", ").at(-1);
    const x = axis(all(".tx", plot), "x", unit(".x-title"));
    const y = axis(all(".ty", plot), "y", unit(".y-title"));
    for (const row of all("[data-mark]", plot)) {
      const dot = row.querySelector(".dot");
      const values = [x(percent(dot, "cx")), y(percent(dot, "cy"))];
      found.push({row, dot, values, t: row.closest("[data-t]").dataset.t});
    }
  }
  return found;
}
const name = (figure) => `${figure.closest("section").querySelector("h2").firstChild.textContent}: ` +
  figure.querySelector("h3").textContent;
"#;

/// Creates a page of all results.
fn page(folder: &Path) -> PathBuf {
    let files = fs::read_dir(RESULTS).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<String> = files.map(|file| file.to_str().unwrap().to_owned()).collect();
    browser::page(folder, files)
}

/// Runs a script after [`COMMON`] in the page.
fn run(browser: &Browser, script: &str) -> Value {
    browser.run(&format!("{COMMON}{script}"))
}

/// Fails with everything that a script finds wrong.
fn nothing(browser: &Browser, script: &str) {
    let wrong = run(browser, &format!("const wrong = [];{script}; return wrong;"));
    assert_eq!(wrong, json!([]));
}

/// Checks that no text overlaps other text or leaves the window.
fn assert_readable(browser: &Browser) {
    nothing(
        browser,
        r#"
        // Of the letters alone, without room around them.
        const box = (it) => {
          const letters = document.createRange();
          letters.selectNodeContents(it);
          return (it.childNodes.length ? letters : it).getBoundingClientRect();
        };
        const label = (it) => `${name(it.closest("figure"))}: ${it.textContent}`;
        for (const it of all("figure text, .row .name, .row .value, .unit, .panel-title, .key, figcaption")) {
          const {left, right} = box(it);
          if (seen(it) && (left < -0.5 || right > innerWidth + 0.5)) wrong.push(`${it.textContent}: ${left} to ${right}`);
        }
        const touch = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5
          && a.top < b.bottom - 1.5 && b.top < a.bottom - 1.5;
        const apart = (group) => {
          const shown = group.filter(seen);
          shown.forEach((it, at) => shown.slice(at + 1).forEach((other) => {
            if (touch(box(it), box(other))) wrong.push(`${label(it)} lies over ${other.textContent}`);
          }));
        };
        for (const panel of all("figure .panel")) apart([...all(".axis text", panel), ...all(".unit", panel)]);
        for (const row of all("figure .row")) apart(all(".name, .value", row));
        for (const plot of all(".plot")) for (const kind of [".tx", ".ty", ".end text"]) apart(all(kind, plot));
        for (const it of all("figure [data-mark] .dot, figure .bar")) {
          const {left, right} = box(it);
          if (left < -0.5 || right > innerWidth + 0.5) wrong.push(`${label(it.closest(".row, .plot"))}: out of sight`);
        }"#,
    );
    assert_eq!(
        browser.run(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        ),
        json!(0)
    );
}

#[test]
fn chart_marks_match_table_values() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    browser.open(&page);
    let titles = run(&browser, "return all('figure h3').map((it) => it.textContent)");
    for kind in KINDS {
        let is_it = |title: &Value| title.as_str().unwrap().split(", ").next() == Some(kind);
        assert!(titles.as_array().unwrap().iter().any(is_it), "{kind} is not in {titles}");
    }
    nothing(
        &browser,
        r#"
        for (const it of all("svg, svg *")) for (const {name, value} of it.attributes) {
          if (/NaN|inf|undefined/i.test(value)) wrong.push(`${it.tagName} ${name}=${value}`);
        }
        for (const figure of all("figure")) {
          const units = all("thead th", figure).map((it) => it.querySelector("small")?.textContent ?? "");
          const lines = all("tbody tr", figure).map((row) => ({t: row.dataset.t,
            numbers: all("th, td", row).flatMap((cell, at) => numbers(cell.textContent, units[at]))}));
          const found = marks(figure);
          if (found.length === 0 || found.length > lines.length * 4) wrong.push(`${name(figure)}: ${found.length} marks`);
          for (const {values, said, t} of found) {
            const what = `${name(figure)}, ${t}: ${JSON.stringify(values)}`;
            if (said !== undefined && !close(values[0], said)) wrong.push(`${what} stands beside ${said}`);
            const is_it = (line) => line.t === t && values.every((value) => line.numbers.some((it) => close(value, it)));
            if (!lines.some(is_it)) wrong.push(`${what} is not in the table`);
          }
        }"#,
    );
    assert_readable(&browser);
    browser.assert_quiet(&page);
}

#[test]
fn charts_are_readable_on_phone_and_paper() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    for width in [390, 1080] {
        let size =
            json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500});
        browser.devtools("Emulation.setDeviceMetricsOverride", &size);
        browser.open(&page);
        assert_readable(&browser);
    }
    // An A4 sheet between its margins. Tables are expanded when printed, because a reader cannot
    // scroll them.
    let size = json!({"width": 688, "height": 1000, "deviceScaleFactor": 1, "mobile": false});
    browser.devtools("Emulation.setDeviceMetricsOverride", &size);
    browser.devtools("Emulation.setEmulatedMedia", &json!({"media": "print"}));
    assert_readable(&browser);
    nothing(
        &browser,
        r#"
        for (const table of all("table")) {
          const {right} = table.getBoundingClientRect();
          if (!seen(table) || right > innerWidth + 0.5) wrong.push(`${table.textContent.slice(0, 80)}: to ${right}`);
        }"#,
    );
    browser.assert_quiet(&page);
}

#[test]
fn charts_show_exact_values_and_filter() {
    let _alone = alone();
    let browser = browser!();
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    browser.open(&page);
    let figures = run(
        &browser,
        r#"return all("figure").map((figure, number) => {
          // The one that is furthest from the others.
          const found = marks(figure);
          const place = ({dot}) => { const {x, y} = dot.getBoundingClientRect(); return [x, y]; };
          const far = ([x, y], [left, top]) => Math.hypot(x - left, y - top);
          const room = (it) => Math.min(...found.filter((other) => other !== it).map((other) => far(place(it), place(other))));
          const {dot, values, t} = found.toSorted((a, b) => room(b) - room(a))[0];
          dot.id = `mark-${number}`;
          const box = document.querySelector(`.choices input[name=t][value="${t}"]`);
          return {figure: name(figure), t, technique: box.parentNode.textContent.trim(), values};
        })"#,
    );
    for (number, figure) in figures.as_array().unwrap().iter().enumerate() {
        browser.point_at(&format!("#mark-{number}"));
        let tip = browser.text(
            "const it = document.getElementById('tip'); return it.hidden ? '' : it.textContent",
        );
        let technique = figure["technique"].as_str().unwrap();
        assert!(tip.starts_with(technique), "{figure}: {tip:?}");
        let value = &figure["values"].as_array().unwrap().last().unwrap();
        let is_said = format!("return numbers({}).some((it) => close({value}, it))", json!(tip));
        assert_eq!(run(&browser, &is_said), json!(true), "{figure}: {tip:?}");

        let t = figure["t"].as_str().unwrap();
        let shown = |of: &str| {
            let figure = format!("const figure = all('figure')[{number}];");
            run(&browser, &format!("{figure} return all({of:?}, figure).filter(seen).length"))
        };
        let (mine, every) = (format!(".row[data-t='{t}'], .series[data-t='{t}']"), "[data-mark]");
        let before = (shown(&mine), shown(every));
        assert_ne!(before.0, json!(0), "{figure}");
        let click = format!(".choices input[name=t][value='{t}']");
        let click = || browser.run(&format!("document.querySelector({click:?}).click()"));
        click();
        assert_eq!(shown(&mine), json!(0), "{figure}");
        assert!(shown(every).as_f64() < before.1.as_f64(), "{figure}");
        click();
        assert_eq!((shown(&mine), shown(every)), before, "{figure}");
    }
    browser.assert_quiet(&page);
}

//! Templates of pages and pictures, in `assets/`. Text from result files is escaped wherever it is
//! inserted.

use std::sync::LazyLock;

use dray_text::escape_html;
use minijinja::{AutoEscape, Environment, escape_formatter};
use serde::Serialize;

use crate::escape::markdown;

const MARKDOWN: AutoEscape = AutoEscape::Custom("markdown");

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|name| match name.ends_with(".md") {
        true => MARKDOWN,
        false => AutoEscape::Html,
    });
    environment.set_formatter(|out, state, value| match state.auto_escape() {
        MARKDOWN => Ok(out.write_str(&markdown(&value.to_string()))?),
        AutoEscape::Html if !value.is_safe() => {
            Ok(out.write_str(&escape_html(&value.to_string()))?)
        }
        _ => escape_formatter(out, state, value),
    });
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.add_filter("percent", |value: f64| format!("{value:.2}%"));
    for (name, source) in [
        ("charts.html", include_str!("../assets/charts.html")),
        ("links.svg", include_str!("../assets/links.svg")),
        ("page.html", include_str!("../assets/page.html")),
        ("report.md", include_str!("../assets/report.md")),
    ] {
        environment.add_template(name, source).expect("valid template");
    }
    environment
});

/// Renders the template `name` with the fields of `data`.
pub(crate) fn render(name: &str, data: impl Serialize) -> String {
    let template = TEMPLATES.get_template(name).expect("listed template");
    template.render(data).expect("data has every variable of the template")
}

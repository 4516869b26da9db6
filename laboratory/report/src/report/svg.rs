//! A report as one picture: a bar for each link, for light and dark backgrounds.

use minijinja::context;
use serde::Serialize;

use crate::number::{plain, rate_unit};
use crate::overview::{Overview, gigabits};
use crate::report::Report;
use crate::scale::Scale;
use crate::template;

/// Width of the picture and of its parts, in pixels.
const WIDTH: f64 = 880.0;
const NAMES: f64 = 210.0;
const FIGURES: f64 = 200.0;

/// A link in the picture.
#[derive(Serialize)]
struct Bar<'a> {
    link: &'a str,
    is_ours: bool,
    /// Length in pixels.
    length: f64,
    /// Rates of small frames and of large ones, as text.
    small: String,
    large: String,
}

impl Report {
    /// Draws the links of the first host as one picture, for light and dark backgrounds. Empty if
    /// no run compares links.
    pub fn svg(&self) -> String {
        let compared = self.hosts.iter().find_map(|host| Some((host, host.overview.as_ref()?)));
        compared.map_or_else(String::new, |(host, overview)| render(&host.name, overview))
    }
}

fn render(host: &str, Overview { sizes, rows }: &Overview) -> String {
    let rates = || rows.iter().map(|row| row.small.pps).filter(|pps| *pps > 0.0);
    let most = rates().fold(0.0, f64::max);
    let unit = rate_unit(most);
    let least = rates().fold(most, f64::min);
    let scale = Scale::log(least.min(most / 10.0).max(1.0), most.max(10.0));
    let length = |pps: f64| (WIDTH - NAMES - FIGURES) * scale.position(pps);
    let ticks = scale.ticks().into_iter();
    let ticks: Vec<_> =
        ticks.map(|tick| (NAMES + length(tick), plain(tick / unit.factor))).collect();
    let bars = rows.iter().map(|row| Bar {
        link: &row.link,
        is_ours: row.link.starts_with("switch"),
        length: length(row.small.pps).max(1.0),
        small: unit.of(row.small.pps),
        large: gigabits(row.large),
    });
    let bars: Vec<Bar> = bars.collect();
    template::render("links.svg", context! { host, sizes, unit => unit.name, ticks, bars })
}

#[cfg(test)]
mod tests {
    use crate::report::Report;
    use crate::sample::{self, row};

    #[test]
    fn picture_has_a_bar_for_each_link_and_escapes_names() {
        let rows = [row("veth/udp", 64), row("a<b&\"/udp", 64), row("switch/patch", 64)];
        let svg = Report::new(vec![sample::run(&sample::results(&rows))]).svg();
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
        assert!(svg.contains("a&lt;b&amp;&quot;") && !svg.contains("a<b"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn results_without_rates_draw_no_picture() {
        let report = Report::new(vec![sample::run(&sample::results(&[]))]);
        assert_eq!(report.svg(), "");
    }
}

//! A report as one picture: a bar for each link, for light and dark backgrounds.

use crate::escape::html;
use crate::number::{plain, rate_unit};
use crate::overview::{Overview, gigabits};
use crate::report::Report;
use crate::scale::Scale;

/// Width of the picture and of its parts, in pixels.
const WIDTH: f64 = 880.0;
const NAMES: f64 = 210.0;
const FIGURES: f64 = 200.0;
/// Height of a row, and of everything above and below the rows.
const ROW: f64 = 22.0;
const HEAD: f64 = 58.0;
const FOOT: f64 = 30.0;

/// Follows the viewer's colour scheme: the picture is used outside of pages, too.
const STYLE: &str = "\
text{font:13px system-ui,'Segoe UI','Noto Sans','DejaVu Sans',sans-serif;fill:#1b1e22}\
.soft{fill:#5c636b}.title{font-size:15px;font-weight:600}.grid{stroke:#e4e4e0}\
.bar{fill:#1f5fd0}.ours{fill:#c2550a}\
@media(prefers-color-scheme:dark){text{fill:#e4e6e8}.soft{fill:#9aa3ac}.grid{stroke:#2b3138}\
.bar{fill:#6ea8ff}.ours{fill:#ff9f5a}}";
impl Report {
    /// Draws the links of the first host as one picture, for light and dark backgrounds. Empty if no
    /// run compares links.
    pub fn svg(&self) -> String {
        render(self)
    }
}

fn render(report: &Report) -> String {
    let Some((host, overview)) =
        report.hosts.iter().find_map(|host| Some((host, host.overview.as_ref()?)))
    else {
        return String::new();
    };
    let Overview { sizes: [small, large], rows } = overview;
    let rates = || rows.iter().map(|row| row.small.pps).filter(|pps| *pps > 0.0);
    let most = rates().fold(0.0, f64::max);
    let unit = rate_unit(most);
    let least = rates().fold(most, f64::min);
    let scale = Scale::log(least.min(most / 10.0).max(1.0), most.max(10.0));
    let track = WIDTH - NAMES - FIGURES;
    let at = |pps: f64| NAMES + track * scale.position(pps);
    let height = HEAD + ROW * rows.len() as f64 + FOOT;
    let mut out = String::new();
    out += &format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Frames per second by link\"><style>{STYLE}</style>\
         <text class=\"title\" x=\"0\" y=\"18\">Frames of {small} B per second, {} (logarithmic)</text>\
         <text class=\"soft\" x=\"0\" y=\"{:.0}\">{}</text>",
        unit.name,
        height - 8.0,
        html(&host.name)
    );
    let end = WIDTH - FIGURES;
    out += &format!(
        "<text class=\"soft\" x=\"{:.0}\" y=\"44\" text-anchor=\"end\">{small} B</text>\
         <text class=\"soft\" x=\"{WIDTH}\" y=\"44\" text-anchor=\"end\">{large} B, Gb/s</text>",
        end + 85.0
    );
    for tick in scale.ticks() {
        let x = at(tick);
        let label = plain(tick / unit.factor);
        out += &format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"50\" y2=\"{:.0}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"44\" text-anchor=\"middle\">{label}</text>",
            height - FOOT
        );
    }
    for (number, row) in rows.iter().enumerate() {
        let top = HEAD + ROW * number as f64;
        let middle = top + ROW / 2.0 + 1.0;
        let class = if row.link.starts_with("switch") { "ours" } else { "bar" };
        out += &format!(
            "<text x=\"{:.0}\" y=\"{middle:.0}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{NAMES}\" y=\"{:.0}\" width=\"{:.1}\" height=\"12\" rx=\"2\"/>\
             <text x=\"{:.0}\" y=\"{middle:.0}\" text-anchor=\"end\">{}</text>\
             <text x=\"{WIDTH}\" y=\"{middle:.0}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            html(&row.link),
            top + 2.0,
            (at(row.small.pps) - NAMES).max(1.0),
            end + 85.0,
            unit.of(row.small.pps),
            gigabits(row.large)
        );
    }
    out.push_str("</svg>\n");
    out
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
        assert!(svg.contains("prefers-color-scheme:dark") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn results_without_rates_draw_no_picture() {
        let report = Report::new(vec![sample::run(&sample::results(&[]))]);
        assert_eq!(report.svg(), "");
    }
}

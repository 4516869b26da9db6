//! Recommends a technique for each of the common questions, or leaves the question open.

use dray_results::{DropRate, Interval, Layout, Measured, Neighbour, StreamRow};
use serde::Serialize;

use crate::chart::{Panel, PanelRow, Shape};
use crate::charts::pairs;
use crate::charts::rows::{MeasuredRow, bits, cores, measured, tip};
use crate::distinct::distinct;
use crate::input::Run;
use crate::number::{GIGABITS, Unit, percent, plus_minus, rate_unit, time, time_unit};
use crate::scale::Scale;
use crate::technique::{Techniques, is_unmodified, takes};

/// A question and its answer.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) question: &'static str,
    /// Quantity and frame size that were compared.
    pub(crate) condition: String,
    /// The best technique; the next field is its figure.
    pub(crate) best: String,
    pub(crate) figure: String,
    /// How certain the answer is, and the runners-up.
    pub(crate) verdict: String,
    /// The technique next to the best, unless only one was measured.
    #[serde(skip)]
    pub(crate) next: Option<Next>,
    /// Programs that can use the technique.
    pub(crate) takes: String,
    /// Chart of the best few techniques.
    pub(crate) chart: Panel,
}

/// Runner-up of a ranking.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) technique: String,
    /// Distance to the best: `8 %`, or `2.5x`.
    pub(crate) lead: String,
    /// True if the intervals of the two do not overlap; `None` without intervals.
    pub(crate) is_real: Option<bool>,
}

/// A technique in a ranking, best first.
struct Ranked {
    technique: String,
    /// Frame size; 0 for a byte stream.
    size: usize,
    value: f64,
    interval: Option<Interval>,
    /// Full details, in lines.
    tip: String,
    loss_ratio: f64,
    /// Sentence about the resources that it needs.
    needs: Option<String>,
    /// Programs that can use it.
    takes: Option<&'static str>,
    /// Measured seconds and start time.
    care: (f64, String),
}

/// How figures are ranked and formatted.
struct Measure {
    question: &'static str,
    /// Compared quantity, written before the frame size.
    of: String,
    less_is_better: bool,
    unit: fn(f64) -> Unit,
}

impl Measure {
    /// Ranks by the highest figure.
    fn most(question: &'static str, of: String, unit: fn(f64) -> Unit) -> Self {
        Self { question, of, less_is_better: false, unit }
    }
}

/// A figure, and its interval if there is one.
type Value = (f64, Option<Interval>);

/// Number of techniques shown.
const SHOWN: usize = 5;

/// Largest size of small frames. Frames are large from [`LARGE`] on.
const SMALL: usize = 128;
const LARGE: usize = 1024;

/// A row of frames, and its run.
type RowOfRun<'r> = (&'r Run, MeasuredRow<'r>);

/// Returns the answers for runs on one host, and the questions that the runs leave open.
pub(crate) fn answers(runs: &[&Run], techniques: &Techniques) -> (Vec<Answer>, Vec<&'static str>) {
    let (mut answers, mut open) = (Vec::new(), Vec::new());
    for (measure, candidates) in candidates(runs) {
        match answer(&measure, candidates, techniques) {
            Some(answer) => answers.push(answer),
            // Runs without streams leave no question about streams open.
            None if measure.question == "Byte streams" => {}
            None => open.push(measure.question),
        }
    }
    (answers, open)
}

/// Returns the questions, each with the figures that it compares.
fn candidates(runs: &[&Run]) -> [(Measure, Vec<Ranked>); 6] {
    let trusted = trusted(runs);
    let (full, how) = at_full_rate(&trusted);
    let sizes = || full.iter().map(|(_, (row, _))| row.frame_size);
    let of_size = |size: Option<usize>| -> Vec<RowOfRun> {
        full.iter().filter(|(_, (row, _))| Some(row.frame_size) == size).copied().collect()
    };
    let small = of_size(sizes().filter(|size| *size <= SMALL).min());
    let large = of_size(sizes().filter(|size| *size >= LARGE).max());
    let usual = if small.is_empty() { &large } else { &small };
    let unmodified = usual.iter().filter(|(_, (row, _))| is_unmodified(row)).copied();
    let unmodified: Vec<RowOfRun> = unmodified.collect();
    [
        (
            Measure::most("Small frames", format!("most frames per second{how}"), rate_unit),
            ranked(&small, rate_of),
        ),
        (
            Measure::most("Large frames", format!("most bits per second{how}"), |_| GIGABITS),
            ranked(&large, bits_of),
        ),
        (
            Measure {
                question: "Latency",
                of: "lowest 99th percentile of round trips".to_owned(),
                less_is_better: true,
                unit: time_unit,
            },
            ranked(&trusted, |(_, measured)| Some((measured.latency_ns?.p99 as f64, None))),
        ),
        (
            Measure::most(
                "Unmodified programs",
                format!("most frames per second through ordinary sockets{how}"),
                rate_unit,
            ),
            ranked(&unmodified, rate_of),
        ),
        (
            Measure::most("Byte streams", "most payload per second, one pair".to_owned(), |_| {
                GIGABITS
            }),
            streams(runs),
        ),
        (
            Measure::most(
                "Fewest cores",
                "most frames per second per busy core".to_owned(),
                rate_unit,
            ),
            ranked(usual, |(_, measured)| Some((measured.received_pps / cores(measured)?, None))),
        ),
    ]
}

/// Returns the rows that may be ranked.
fn trusted<'r>(runs: &[&'r Run]) -> Vec<RowOfRun<'r>> {
    // The cost of a receiver's checks is another question.
    let runs = runs.iter().filter(|run| run.results.table.layout != Layout::Checks);
    let rows = runs.flat_map(|run| measured(run).map(|row| (*run, row)));
    // So is a trial beside a noisy neighbour.
    rows.filter(|(_, (row, _))| row.neighbour.is_none_or(|it| it == Neighbour::Quiet))
        .filter(|(_, (_, measured))| !measured.counters_disagree())
        .collect()
}

/// Returns rows of frames with their `value`.
fn ranked(rows: &[RowOfRun], value: fn(&MeasuredRow) -> Option<Value>) -> Vec<Ranked> {
    let of = |&(run, row): &RowOfRun| {
        let (value, interval) = value(&row)?;
        Some(Ranked {
            technique: row.0.technique.clone(),
            size: row.0.frame_size,
            value,
            interval,
            tip: tip(row),
            loss_ratio: row.1.loss_ratio,
            needs: needs(row.1),
            takes: takes(&row.0.endpoint),
            care: care(run, row.1.trials),
        })
    };
    rows.iter().filter_map(of).collect()
}

/// Returns byte streams between one pair.
fn streams(runs: &[&Run]) -> Vec<Ranked> {
    let all = runs.iter().flat_map(|run| run.results.streams.iter().map(move |row| (run, row)));
    let of = |(run, row): (&&Run, &StreamRow)| {
        let measured = row.measured().filter(|it| !it.counters_disagree() && row.pairs == 1)?;
        Some(Ranked {
            technique: row.technique.clone(),
            size: 0,
            value: measured.goodput_bps,
            interval: measured.interval(),
            tip: pairs::tip_of_streams(row, measured),
            loss_ratio: 0.0,
            needs: None,
            takes: takes(&row.endpoint),
            care: care(run, measured.trials),
        })
    };
    all.filter_map(of).collect()
}

fn care(run: &Run, trials: usize) -> (f64, String) {
    (run.results.settings.measure_s * trials as f64, run.results.time.clone())
}

/// Returns the rows that show how much a technique can carry, and a phrase that describes them:
/// either the loss-free rates, or the rates when sending as fast as possible, whichever cover more
/// techniques. The two must not be ranked together.
fn at_full_rate<'r>(rows: &[RowOfRun<'r>]) -> (Vec<RowOfRun<'r>>, &'static str) {
    let is_full = |(_, (row, _)): &&RowOfRun| {
        row.topology == "chain" && row.forwarders == 0 && row.offered_pps.is_none()
    };
    let (searched, rest): (Vec<_>, Vec<_>) =
        rows.iter().filter(is_full).copied().partition(|(_, (_, it))| !it.drop_rates.is_empty());
    let without_loss: Vec<_> =
        searched.into_iter().filter(|(_, (_, it))| loss_free(it).is_some()).collect();
    let techniques =
        |rows: &[RowOfRun]| distinct(rows, |(_, (row, _))| row.technique.clone()).len();
    if !without_loss.is_empty() && techniques(&without_loss) >= techniques(&rest) {
        (without_loss, " without loss")
    } else {
        (rest, "")
    }
}

/// Returns the search result of the highest rate without loss.
fn loss_free(measured: &Measured) -> Option<&DropRate> {
    measured.drop_rates.iter().find(|found| found.loss_ratio == 0.0)
}

fn rate_of((_, measured): &MeasuredRow) -> Option<Value> {
    Some(match loss_free(measured) {
        Some(found) => (found.pps, found.interval()),
        None => (measured.received_pps, measured.interval()),
    })
}

fn bits_of(row: &MeasuredRow) -> Option<Value> {
    let factor = bits(row.0, 1.0);
    let (rate, interval) = rate_of(row)?;
    Some((rate * factor, interval.map(|interval| interval.scaled(factor))))
}

fn answer(measure: &Measure, candidates: Vec<Ranked>, techniques: &Techniques) -> Option<Answer> {
    let mut ranking = most_careful(candidates);
    ranking.retain(|it| it.value > 0.0);
    ranking.sort_by(|a, b| a.value.total_cmp(&b.value));
    if !measure.less_is_better {
        ranking.reverse();
    }
    let best = ranking.first()?;
    let shown = &ranking[..ranking.len().min(SHOWN)];
    let most =
        shown.iter().map(|it| it.interval.map_or(it.value, Interval::high)).fold(0.0, f64::max);
    let unit = (measure.unit)(if measure.less_is_better { best.value } else { most });
    let scale = Scale::fitting(shown.iter().map(|it| it.value).chain([most]));
    let rows = shown.iter().map(|it| panel_row(it, techniques, unit)).collect();
    let size = match best.size {
        0 => String::new(),
        size => format!(", {size} B"),
    };
    Some(Answer {
        question: measure.question,
        condition: format!("{}{size}", measure.of),
        best: best.technique.clone(),
        figure: format!("{} {}", unit.with(best.value), plus_minus(best.interval))
            .trim_end()
            .to_owned(),
        verdict: verdict(measure, &ranking),
        next: next(measure, &ranking),
        takes: best.takes.map_or(String::new(), |programs| format!("For {programs}.")),
        chart: Panel::new(String::new(), best.size, scale, unit, rows),
    })
}

/// Keeps one figure per technique: the one measured longest or, if equal, latest.
fn most_careful(candidates: Vec<Ranked>) -> Vec<Ranked> {
    let mut chosen: Vec<Ranked> = Vec::new();
    for it in candidates {
        match chosen.iter_mut().find(|known| known.technique == it.technique) {
            Some(known) if it.care > known.care => *known = it,
            Some(_) => {}
            None => chosen.push(it),
        }
    }
    chosen
}

fn panel_row(it: &Ranked, techniques: &Techniques, unit: Unit) -> PanelRow {
    PanelRow {
        technique: techniques.get(&it.technique).clone(),
        shapes: Shape::figure(it.value, it.interval),
        value: (unit.of(it.value), String::new()),
        tip: it.tip.clone(),
    }
}

/// Compares the best two of a ranking.
fn next(measure: &Measure, ranking: &[Ranked]) -> Option<Next> {
    let [best, next, ..] = ranking else { return None };
    let ratio = ratio(measure, best, next);
    Some(Next {
        technique: next.technique.clone(),
        lead: lead(ratio, "x"),
        is_real: best.interval.zip(next.interval).map(|(a, b)| !a.overlaps(b)),
    })
}

/// Returns how many times better `best` is than `next`.
fn ratio(measure: &Measure, best: &Ranked, next: &Ranked) -> f64 {
    if measure.less_is_better { next.value / best.value } else { best.value / next.value }
}

/// Formats by how much a figure is better: in percent, or from twice as good on as a multiple.
fn lead(ratio: f64, times: &str) -> String {
    if ratio < 1.995 {
        return format!("{:.0} %", 100.0 * (ratio - 1.0));
    }
    format!("{ratio:.1}{times}")
}

/// Returns the verdict. It says "Faster" only if the intervals do not overlap.
fn verdict(measure: &Measure, ranking: &[Ranked]) -> String {
    let [best, others @ ..] = ranking else { return String::new() };
    let Some(next) = others.first() else {
        return "The only technique measured.".to_owned();
    };
    let name = |it: &Ranked| it.technique.clone();
    let ratio = ratio(measure, best, next);
    let ahead = lead(ratio, " times");
    let mut text = match best.interval.zip(next.interval) {
        None if measure.less_is_better => {
            format!(
                "Next: {} with {}; no interval, so the order is not certain.",
                name(next),
                time(next.value)
            )
        }
        None if ratio < 1.005 => {
            format!("Level with {}; no interval, so the order is not certain.", name(next))
        }
        None => format!(
            "{ahead} ahead of {}; no interval, so the difference is not certain.",
            name(next)
        ),
        Some((a, b)) if a.overlaps(b) => {
            let is_level = |it: &&Ranked| it.interval.is_some_and(|interval| interval.overlaps(a));
            let level: Vec<String> = others.iter().filter(is_level).take(3).map(name).collect();
            format!("No clear difference from {}: the 95 % intervals overlap.", level.join(", "))
        }
        Some(_) => {
            format!("Faster than {} by {ahead}: the 95 % intervals do not overlap.", name(next))
        }
    };
    let lost = best.loss_ratio;
    if lost >= 0.0001 {
        text.push_str(&format!(" It lost {} % of the frames sent.", percent(lost)));
    }
    text.extend(best.needs.clone());
    text
}

/// Returns a sentence about the huge pages that a technique's switch needs.
fn needs(measured: &Measured) -> Option<String> {
    let switch = measured.setting.switch.as_ref()?;
    Some(match switch.hugepages_mib {
        0 => " The switch needs no huge pages.".to_owned(),
        mib => format!(" The switch needs {mib} MiB of huge pages."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn answers_of(rows: &[sample::Row]) -> (Vec<Answer>, Vec<&'static str>) {
        let run = sample::run(&sample::results(rows));
        let mut techniques = Techniques::default();
        for row in &run.results.results {
            techniques.add(&row.technique, &row.link);
        }
        answers(&[&run], &techniques)
    }

    fn row(technique: &str, size: usize, samples: &[f64]) -> sample::Row {
        sample::row(technique, size).samples(samples)
    }

    #[test]
    fn equal_figures_are_level() {
        let (answers, _) =
            answers_of(&[row("veth/udp", 64, &[10e5]), row("veth/raw", 64, &[10e5])]);
        let cores = answers.iter().find(|answer| answer.question == "Fewest cores").unwrap();
        assert!(cores.verdict.starts_with("Level with veth/"), "{}", cores.verdict);
    }

    #[test]
    fn faster_requires_separate_intervals() {
        let apart =
            [row("veth/udp", 64, &[10e5, 10.1e5]), row("switch/patch", 64, &[300e5, 301e5, 302e5])];
        let (answers, open) = answers_of(&apart);
        assert_eq!(answers[0].best, "switch/patch");
        assert!(
            answers[0].verdict.starts_with("Faster than veth/udp by 30"),
            "{}",
            answers[0].verdict
        );
        assert_eq!(open, ["Large frames", "Latency"]);
        let unmodified = answers.iter().find(|it| it.question == "Unmodified programs").unwrap();
        assert_eq!(
            (&*unmodified.best, &*unmodified.verdict),
            ("veth/udp", "The only technique measured.")
        );

        let level = [row("veth/udp", 64, &[10e5, 12e5]), row("bridge/udp", 64, &[9e5, 12e5])];
        let verdict = &answers_of(&level).0[0].verdict;
        assert!(verdict.starts_with("No clear difference from bridge/udp"), "{verdict}");
        let once = [row("veth/udp", 64, &[10e5]), row("bridge/udp", 64, &[9e5])];
        let verdict = &answers_of(&once).0[0].verdict;
        assert!(verdict.contains("no interval"), "{verdict}");
    }

    #[test]
    fn summary_ranks_streams_separately() {
        let run = sample::run(&sample::streams(&[
            ("veth/tcp", &[9e9, 9.01e9]),
            ("bridge/tcp", &[5e9, 5.01e9]),
        ]));
        let mut techniques = Techniques::default();
        techniques.add("veth/tcp", "veth");
        techniques.add("bridge/tcp", "bridge");
        let (answers, open) = answers(&[&run], &techniques);
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((answer.question, &*answer.best), ("Byte streams", "veth/tcp"));
        assert!(answer.verdict.starts_with("Faster than bridge/tcp by 80 %"), "{}", answer.verdict);
        assert!(open.contains(&"Small frames"));
    }

    #[test]
    fn summary_ignores_wrong_and_paced_results() {
        let wrong = row("bridge/udp", 64, &[90e5, 91e5]).with("counters_agree", "false");
        let paced = row("veth/raw", 64, &[90e5, 91e5]).with("offered_pps", "9000000.0");
        let (answers, _) = answers_of(&[row("veth/udp", 64, &[1e5, 1.1e5]), wrong, paced]);
        assert_eq!(answers[0].best, "veth/udp");
    }

    #[test]
    fn summary_ignores_noisy_neighbours() {
        let beside = |technique, neighbour, samples: &[f64]| {
            row(technique, 64, samples).with("neighbour", &format!("\"{neighbour}\""))
        };
        let (answers, _) = answers_of(&[
            beside("veth/udp", "quiet", &[20e5, 20.1e5]),
            beside("bridge/udp", "quiet", &[10e5, 10.1e5]),
            beside("bridge/udp", "noisy", &[30e5, 30.1e5]),
            beside("bridge/udp", "confined", &[40e5, 40.1e5]),
        ]);
        assert!(answers[0].best.starts_with("veth/udp"), "{}", answers[0].best);
        assert!(answers[0].verdict.contains("bridge/udp by 2.0 times"), "{}", answers[0].verdict);
    }
}

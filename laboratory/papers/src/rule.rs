//! Rules that decide if a claim holds on results.

use dray_report::Run;
use dray_report::number::digits;
use dray_results::Distance;

use crate::figure::Figure;
use crate::pick::{Pick, longest};

/// A rule: how a claim is decided. Figures count with their 95 % intervals, so a claim holds only
/// if it holds for every value in them, and fails only if it fails for every value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Each figure is above the next.
    Order(&'static [Pick]),
    /// The first figure divided by the second is from `low` to `high`.
    Ratio { of: Pick, by: Pick, low: f64, high: f64 },
    /// The figure is from `low` to `high`, in base units.
    Within { of: Pick, low: f64, high: f64 },
    /// The figures are the same: each divided by the first differs from 1 by at most `tolerance`.
    Same { figures: &'static [Pick], tolerance: f64 },
    /// All frames arrive up to a highest rate, and more of them change that rate little. A sender
    /// that a full ring or forwarders on its CPU hold back sends less than offered, so rates count
    /// as they were offered: all of them, or with `free`, a link that never limits the sender,
    /// those up to the highest that the same sender reaches there.
    Saturates { of: Pick, free: Option<Pick> },
    /// From one number of forwarders to the next, no figure is above the one before, and the last
    /// is below the first.
    Falls(Pick),
    /// No experiment of dray measures it: the reason.
    Unmeasured(&'static str),
}

/// Verdict on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    /// The figures do not decide: the reason.
    Undecided(String),
    /// Figures are missing: the reason.
    Unmeasured(String),
}

/// Verdict, and the figures that it is based on.
#[derive(Debug)]
pub(crate) struct Judged<'r> {
    pub(crate) verdict: Verdict,
    /// Figures in words, one a line.
    pub(crate) here: Vec<String>,
    pub(crate) figures: Vec<Figure<'r>>,
}

/// Share of the frames offered that must arrive below the highest rate.
const ALL_ARRIVE: f64 = 0.98;
/// Rates up to this share of the highest count as below it.
const BELOW: f64 = 0.9;
/// Rates offered from this multiple of the highest receive rate on count as above it.
const ABOVE: f64 = 1.05;
/// Share of the highest receive rate that must still arrive above it.
const STAYS: f64 = 0.8;

impl Rule {
    /// Decides the claim on the figures of `runs`.
    pub(crate) fn judge<'r>(&self, runs: &'r [Run]) -> Judged<'r> {
        match *self {
            Self::Order(picks) => of_all(picks, runs, |figures| {
                let pairs = || figures.windows(2);
                match () {
                    () if pairs().any(|pair| pair[0].high() < pair[1].low()) => Verdict::Fails,
                    () if pairs().all(|pair| pair[0].low() > pair[1].high()) => Verdict::Holds,
                    () => undecided("intervals overlap"),
                }
            }),
            Self::Ratio { of, by, low, high } => {
                let mut judged = of_all(&[of, by], runs, |figures| {
                    between(ratio(&figures[0], &figures[1]), low, high)
                });
                if let [of, by] = &judged.figures[..] {
                    let [least, mean, most] = ratio(of, by);
                    // A divisor whose interval reaches zero leaves the ratio without an upper end.
                    let range = match most.is_finite() {
                        true => format!("{} to {}", digits(least), digits(most)),
                        false => format!("at least {}", digits(least)),
                    };
                    judged.here.push(format!("ratio {} ({range})", digits(mean)));
                }
                judged
            }
            Self::Within { of, low, high } => of_all(&[of], runs, |figures| {
                let figure = &figures[0];
                between([figure.low(), figure.mean(), figure.high()], low, high)
            }),
            Self::Same { figures, tolerance } => of_all(figures, runs, |figures| {
                let ratios = figures[1..].iter().map(|figure| ratio(figure, &figures[0]));
                let verdicts: Vec<Verdict> =
                    ratios.map(|ratio| between(ratio, 1.0 - tolerance, 1.0 + tolerance)).collect();
                let first = |wanted: &dyn Fn(&Verdict) -> bool| {
                    verdicts.iter().find(|verdict| wanted(verdict)).cloned()
                };
                let fails = first(&|verdict| *verdict == Verdict::Fails);
                fails
                    .or_else(|| first(&|verdict| *verdict != Verdict::Holds))
                    .unwrap_or(Verdict::Holds)
            }),
            Self::Saturates { of, free } => saturates(&of, free.as_ref(), runs),
            Self::Falls(of) => falls(&of, runs),
            Self::Unmeasured(why) => Judged {
                verdict: Verdict::Unmeasured(why.to_owned()),
                here: Vec::new(),
                figures: Vec::new(),
            },
        }
    }

    /// Returns the figures that the rule needs.
    #[cfg(test)]
    pub(crate) fn picks(&self) -> Vec<Pick> {
        match *self {
            Self::Order(picks) | Self::Same { figures: picks, .. } => picks.to_vec(),
            Self::Ratio { of, by, .. } => vec![of, by],
            Self::Within { of, .. } | Self::Falls(of) => vec![of],
            Self::Saturates { of, free } => [of].into_iter().chain(free).collect(),
            Self::Unmeasured(_) => Vec::new(),
        }
    }

    /// Describes the rule.
    pub(crate) fn in_words(&self) -> String {
        let range =
            |low: f64, high: f64, unit: &dyn Fn(f64) -> String| match (low > 0.0, high.is_finite())
            {
                (true, true) => format!("{} to {}", unit(low), unit(high)),
                (true, false) => format!("at least {}", unit(low)),
                (false, _) => format!("at most {}", unit(high)),
            };
        match *self {
            Self::Order(_) => "each above the next".to_owned(),
            Self::Ratio { low, high, .. } => format!("ratio {}", range(low, high, &digits)),
            Self::Within { of, low, high } => range(low, high, &|value| of.of.unit(value)),
            Self::Same { tolerance, .. } => format!("equal within {:.1} %", 100.0 * tolerance),
            Self::Saturates { .. } => format!(
                "{} % of the rate offered arrives where that is at most {} % of the highest received, and {} % of the \
                 highest where it is at least {} %",
                100.0 * ALL_ARRIVE,
                100.0 * BELOW,
                100.0 * STAYS,
                100.0 * ABOVE,
            ),
            Self::Falls(_) => "falls with each forwarder".to_owned(),
            Self::Unmeasured(_) => "-".to_owned(),
        }
    }
}

const BEYOND: &str = "the interval reaches beyond the limit";

fn undecided(why: &str) -> Verdict {
    Verdict::Undecided(why.to_owned())
}

/// Least, mean and largest ratio of two figures.
fn ratio(of: &Figure, by: &Figure) -> [f64; 3] {
    [of.low() / by.high(), of.mean() / by.mean(), of.high() / by.low()]
}

/// Judges a figure, given with both ends of its interval, by the range in which it should be.
fn between([least, mean, most]: [f64; 3], low: f64, high: f64) -> Verdict {
    if mean.is_nan() {
        undecided("both figures are zero")
    } else if least >= low && most <= high {
        Verdict::Holds
    } else if most < low || least > high {
        Verdict::Fails
    } else {
        undecided(BEYOND)
    }
}

/// Finds a figure for each of `picks`: those of one machine with its CPUs near each other if all of
/// them exist, otherwise those with the CPUs far, otherwise any.
fn find<'r>(picks: &[Pick], runs: &'r [Run]) -> Vec<Result<Figure<'r>, String>> {
    let all_at = |distance| {
        let one = |pick: &Pick| {
            let there = pick.find_all(runs).into_iter();
            longest(there.filter(|it| it.distance() == Some(distance) && it.doubt().is_none()))
        };
        let found: Option<Vec<Figure<'r>>> = picks.iter().map(one).collect();
        found.filter(|figures| doubtful(figures).is_none())
    };
    let there = [Distance::Near, Distance::Far].into_iter().find_map(all_at);
    match there {
        Some(figures) => figures.into_iter().map(Ok).collect(),
        None => picks.iter().map(|pick| pick.find(runs)).collect(),
    }
}

/// Decides on figures, all of which must exist and be comparable.
fn of_all<'r>(
    picks: &[Pick],
    runs: &'r [Run],
    judge: impl Fn(&[Figure<'r>]) -> Verdict,
) -> Judged<'r> {
    let found = find(picks, runs);
    let missing = found.iter().find_map(|found| found.as_ref().err().cloned());
    let figures: Vec<Figure> = found.into_iter().flatten().collect();
    let verdict = match missing {
        Some(why) => Verdict::Unmeasured(why),
        None => doubtful(&figures).unwrap_or_else(|| judge(&figures)),
    };
    let here = figures.iter().map(|it| format!("{}: {}", it.label, it.in_words())).collect();
    Judged { verdict, here, figures }
}

/// Returns the verdict on figures that cannot be used together, if that is so.
fn doubtful(figures: &[Figure]) -> Option<Verdict> {
    if let Some(why) = figures.iter().find_map(Figure::doubt) {
        return Some(Verdict::Undecided(why));
    }
    let pairs = figures
        .iter()
        .enumerate()
        .flat_map(|(at, a)| figures[at + 1..].iter().map(move |b| (a, b)));
    pairs.into_iter().find_map(|(a, b)| a.differs(b)).map(Verdict::Undecided)
}

/// A figure, and its place on the axis of a series.
type Point<'r> = (f64, Figure<'r>);

/// Returns a series in the order of its axis, or the verdict if there is none.
fn series<'r>(
    pick: &Pick,
    runs: &'r [Run],
    along: impl Fn(&Figure<'r>) -> f64,
) -> Result<Vec<Point<'r>>, Judged<'r>> {
    let points = pick.find_all(runs).into_iter().map(|figure| (along(&figure), figure));
    let mut points: Vec<Point> = points.collect();
    points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let verdict = match &points[..] {
        [] => Verdict::Unmeasured(pick.missing(runs)),
        [_] => undecided("only one point was measured"),
        _ => return Ok(points),
    };
    let figures: Vec<Figure> = points.into_iter().map(|(_, figure)| figure).collect();
    let here = figures.iter().map(|it| format!("{}: {}", it.label, it.in_words())).collect();
    Err(Judged { verdict, here, figures })
}

fn saturates<'r>(pick: &Pick, free: Option<&Pick>, runs: &'r [Run]) -> Judged<'r> {
    let has_limit = free.is_some();
    let mut free = free.map_or_else(Vec::new, |free| free.find_all(runs));
    free.retain(|figure| figure.doubt().is_none());
    // The limit of a sender depends on the distance of the CPUs too.
    let most_free = |distance| {
        let there = free.iter().filter(|figure| figure.distance() == distance);
        there.max_by(|a, b| a.sent_pps.total_cmp(&b.sent_pps))
    };
    let rate = |figure: &Figure| {
        let able = match has_limit {
            true => most_free(figure.distance()).map_or(0.0, |free| free.sent_pps),
            false => f64::INFINITY,
        };
        figure.sent_pps.max(figure.offered_pps.min(able))
    };
    let curve = match series(pick, runs, rate) {
        Ok(points) => Curve::new(points),
        Err(judged) => return judged,
    };
    let (_, last) = curve.last();
    let mut here = vec![format!("{}: {}", pick.label(), curve.in_words())];
    let mut figures: Vec<Figure> = curve.points.iter().map(|(_, figure)| figure.clone()).collect();
    if let Some(figure) = most_free(last.distance()) {
        here.push(format!("{}: {} sent", figure.label, figure.unit(figure.sent_pps)));
        figures.push(figure.clone());
    }
    let (verdict, (rate, figure)) = match doubtful(&figures) {
        Some(verdict) => (verdict, curve.last()),
        None => curve.saturates(),
    };
    here.push(format!("{} offered, {} received", figure.unit(*rate), figure.in_words()));
    Judged { verdict, here, figures }
}

/// Receive rate by the rate offered, at one distance of the CPUs.
struct Curve<'r> {
    /// Rate offered, and what was received, in the order of the first; at least one.
    points: Vec<Point<'r>>,
    highest_received: f64,
    /// Points at another distance.
    left_out: usize,
}

impl<'r> Curve<'r> {
    /// Keeps the points at the most frequent distance of the CPUs: near, far, or unknown. Keeps all
    /// points if the CPUs moved at each.
    fn new(mut points: Vec<Point<'r>>) -> Self {
        let all = points.len();
        let at =
            |distance| points.iter().filter(|(_, figure)| figure.distance() == distance).count();
        let distances = [None, Some(Distance::Far), Some(Distance::Near)];
        let most = distances.into_iter().max_by_key(|distance| at(*distance)).flatten();
        if at(most) > 0 {
            points.retain(|(_, figure)| figure.distance() == most);
        }
        let received = points.iter().map(|(_, figure)| figure.mean());
        let highest_received = received.fold(0.0, f64::max);
        Self { left_out: all - points.len(), points, highest_received }
    }

    fn last(&self) -> &Point<'r> {
        &self.points[self.points.len() - 1]
    }

    fn below(&self) -> impl Iterator<Item = &Point<'r>> {
        self.points.iter().filter(|(rate, _)| *rate <= BELOW * self.highest_received)
    }

    /// Points at which more was offered than the highest receive rate: only these show that it
    /// stays.
    fn above(&self) -> impl Iterator<Item = &Point<'r>> {
        self.points.iter().filter(|(rate, figure)| {
            *rate >= ABOVE * self.highest_received && figure.mean() < self.highest_received
        })
    }

    /// Decides if all frames arrive up to the highest receive rate, and if that rate then stays.
    /// Also returns the deciding point.
    fn saturates(&self) -> (Verdict, &Point<'r>) {
        let (all, stays) = (ALL_ARRIVE, STAYS * self.highest_received);
        let lost = self.below().filter(|(rate, figure)| figure.high() < all * rate);
        let fell = self.above().filter(|(_, figure)| figure.high() < stays);
        let (lost, fell): (Vec<_>, Vec<_>) = (lost.collect(), fell.collect());
        // The interval of a single trial does not say how well its rate repeats.
        let is_repeated =
            |points: &&Vec<&Point>| points.len() > 1 || points.iter().any(|(_, it)| it.trials > 1);
        if let Some(points) = [&lost, &fell].into_iter().find(is_repeated) {
            return (Verdict::Fails, points[0]);
        }
        if let Some(point) = lost.first().or(fell.first()) {
            return (undecided("only one trial, at one rate, contradicts"), point);
        }
        let no_rate = |where_to: &str| {
            Verdict::Undecided(format!("no rate {where_to} the highest was offered"))
        };
        let lowest_above = self.above().min_by(|(_, a), (_, b)| a.low().total_cmp(&b.low()));
        let Some(lowest_above) = lowest_above else {
            return (no_rate("5 % above"), self.last());
        };
        if self.below().next().is_none() {
            return (no_rate("10 % below"), self.last());
        }
        // Both rates are of the same trials, so their ratio does not have the interval of each.
        let lost = self.below().find(|(rate, figure)| figure.mean() < all * rate);
        let fell = Some(lowest_above).filter(|(_, figure)| figure.low() < stays);
        match lost.or(fell) {
            Some(point) => (undecided(BEYOND), point),
            None => (Verdict::Holds, lowest_above),
        }
    }

    fn in_words(&self) -> String {
        let highest = self.last().1.unit(self.highest_received);
        let left_out = match self.left_out {
            0 => String::new(),
            left_out => format!(
                ", without {left_out} of {} rates, at another distance of the CPUs",
                left_out + self.points.len()
            ),
        };
        format!("highest {highest}{left_out}")
    }
}

fn falls<'r>(pick: &Pick, runs: &'r [Run]) -> Judged<'r> {
    let points = match series(pick, runs, |figure| figure.forwarders as f64) {
        Ok(points) => points,
        Err(judged) => return judged,
    };
    let here = points.iter().map(|(count, figure)| format!("{count}: {}", figure.in_words()));
    let here = here.collect::<Vec<_>>().join(", ");
    let here = vec![format!("{}, by forwarders: {here}", pick.label())];
    let figures: Vec<Figure> = points.into_iter().map(|(_, figure)| figure).collect();
    let rises = figures.windows(2).any(|pair| pair[0].high() < pair[1].low());
    let (first, last) = (&figures[0], &figures[figures.len() - 1]);
    let verdict = match doubtful(&figures) {
        Some(verdict) => verdict,
        None if rises => Verdict::Fails,
        None if first.low() > last.high() => Verdict::Holds,
        None if last.low() > first.high() => Verdict::Fails,
        None => undecided("the intervals of the first and the last overlap"),
    };
    Judged { verdict, here, figures }
}

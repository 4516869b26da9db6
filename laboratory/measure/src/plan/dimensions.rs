//! Dimensions of an experiment: cases are their product.

use dray_lab::Runtime;
use dray_lab::link::Carries;
use dray_results::Check;
use dray_wire::ethernet::ETHERNET_LEN;
use dray_wire::{FRAME_MAX, FRAME_MIN};

use super::case::Case;
use super::choices::Choices;
use super::limits::{PAIRS_MAX, STREAMS_MAX};
use super::selection;
use super::settings::Settings;
use super::wrong_choice::WrongChoice;
use crate::endpoint::Unit;
use crate::experiments::experiment::Experiment;
use crate::shape::Shape;
use crate::technique::Technique;

/// Values of each dimension: the user's choices, otherwise the experiment's.
pub(super) struct Dimensions<'c> {
    pub(super) techniques: Vec<Technique>,
    shapes: Vec<Shape>,
    mtus: &'c [u32],
    pub(super) sizes: &'c [usize],
    /// Rates and shares of the loss-free rate.
    loads: Vec<(Option<f64>, Option<f64>)>,
    checks: &'c [Option<Check>],
    runtimes: &'c [Runtime],
    /// True if senders keep to rates, given or searched for.
    paced: bool,
}

impl<'c> Dimensions<'c> {
    pub(super) fn new(
        experiment: &'static Experiment,
        choices: &'c Choices,
        settings: &Settings,
    ) -> Result<Self, WrongChoice> {
        let rates = match choices.rate {
            Some(_) => std::slice::from_ref(&choices.rate),
            None => experiment.rates,
        };
        // The shares refer to a rate that is still to be found.
        let shares = if choices.rate.is_some() { &[] } else { experiment.shares };
        let loads = rates.iter().map(|&rate| (rate, None));
        let paced = rates.iter().any(Option::is_some) || !settings.goals.is_empty();
        let mut techniques = selection::techniques(experiment, choices.techniques.as_deref())?;
        if techniques.iter().any(|technique| !technique.endpoint.is_stream()) {
            // Streams have neither rates nor stations: where these are chosen, only the other
            // endpoints run.
            let no_streams = paced || choices.stations.is_some_and(|stations| stations > 1);
            techniques.retain(|technique| !(no_streams && technique.endpoint.is_stream()));
        }
        Ok(Self {
            techniques,
            shapes: shapes(experiment, choices.pairs.as_deref())?,
            mtus: choices.mtu.as_ref().map_or(experiment.mtus, std::slice::from_ref),
            sizes: choices.sizes.as_deref().unwrap_or(experiment.sizes),
            loads: loads.chain(shares.iter().map(|&share| (None, Some(share)))).collect(),
            checks: match choices.check {
                Some(_) => std::slice::from_ref(&choices.check),
                None => experiment.checks,
            },
            runtimes: choices.runtimes.as_deref().unwrap_or(experiment.runtimes),
            paced,
        })
    }

    /// Fails if dimensions do not go together.
    pub(super) fn check(&self, choices: &Choices, settings: &Settings) -> Result<(), WrongChoice> {
        self.mtus.iter().try_for_each(|&mtu| check_sizes(self.sizes, mtu))?;
        let streams_only = self.techniques.iter().all(|technique| technique.endpoint.is_stream());
        if let (true, Some(&[given, ..]), Some(&technique)) =
            (streams_only, choices.sizes.as_deref(), self.techniques.first())
        {
            return Err(WrongChoice::NoSize { given, technique });
        }
        for &technique in &self.techniques {
            check_load(technique, settings, self.paced)?;
            check_stations(technique, choices.stations)?;
            check_pairs(technique, &self.shapes)?;
            check_runtime(technique, choices.runtimes.as_deref())?;
        }
        for shape in &self.shapes {
            match (choices.stations, shape) {
                (Some(given @ 2..), Shape::Upf(_)) => {
                    return Err(WrongChoice::UpfStations { given });
                }
                (Some(given @ 2..), Shape::Ports(_)) => {
                    return Err(WrongChoice::PortsStations { given });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns a case for each combination, in the order of measurement.
    pub(super) fn cases(
        &self,
        experiment: &Experiment,
        choices: &Choices,
        settings: &Settings,
    ) -> Vec<Case> {
        // The paper's figure is shown only beside one measured under the same conditions.
        let as_usual = (settings.burst, settings.flows) == (experiment.burst, 1);
        let as_in_paper = as_usual && choices.rate.is_none();
        let usual_stations = |case: &Case| usual_stations(experiment, case.technique, settings);
        let stations =
            |case: &Case| choices.stations.map_or_else(|| usual_stations(case), |it| vec![it]);
        let shapes = |case: &Case| {
            let suits = |shape: &&Shape| shape.suits(case.technique);
            self.shapes.iter().filter(suits).copied().collect()
        };
        let mut cases: Vec<Case> = self.techniques.iter().copied().map(Case::of).collect();
        multiply(&mut cases, |case| self.runtimes(case), |case, runtime| case.runtime = runtime);
        multiply(&mut cases, shapes, |case, shape| case.shape = shape);
        multiply(&mut cases, |_| self.mtus.to_vec(), |case, mtu| case.mtu = mtu);
        multiply(&mut cases, stations, |case, stations| case.stations = stations);
        multiply(&mut cases, |case| self.sizes(case), |case, size| case.size = size);
        for case in &mut cases {
            let comparable =
                as_in_paper && case.stations == 1 && experiment.sizes.contains(&case.size);
            let paper_pps = (experiment.paper_pps)(case.technique, case.shape);
            case.paper_pps = paper_pps.filter(|_| comparable);
        }
        let neighbours = |_: &Case| experiment.neighbours.to_vec();
        multiply(&mut cases, neighbours, |case, neighbour| case.neighbour = neighbour);
        let loads = |_: &Case| self.loads.clone();
        multiply(&mut cases, loads, |case, load| (case.rate, case.share) = load);
        multiply(&mut cases, |_| self.checks.to_vec(), |case, check| case.check = check);
        cases
    }

    /// Returns the runtimes of a case. Some links exist only for the containers of one runtime.
    fn runtimes(&self, case: &Case) -> Vec<Runtime> {
        case.technique.link.runtime().map_or_else(|| self.runtimes.to_vec(), |own| vec![own])
    }

    /// Returns the frame sizes of a case. Streams, and experiments without sizes, use the largest
    /// frames that the MTU allows.
    fn sizes(&self, case: &Case) -> Vec<usize> {
        if case.technique.endpoint.is_stream() || self.sizes.is_empty() {
            vec![case.mtu as usize + ETHERNET_LEN]
        } else {
            self.sizes.to_vec()
        }
    }
}

/// Replaces each case by one for each of its `values`.
fn multiply<T>(
    cases: &mut Vec<Case>,
    values: impl Fn(&Case) -> Vec<T>,
    set: impl Fn(&mut Case, T),
) {
    let each = |case: Case| {
        let with = |value| {
            let mut case = case.clone();
            set(&mut case, value);
            case
        };
        values(&case).into_iter().map(with).collect::<Vec<_>>()
    };
    *cases = std::mem::take(cases).into_iter().flat_map(each).collect();
}

/// Returns the experiment's topologies, or one per entry of `pairs` instead of them.
fn shapes(experiment: &Experiment, pairs: Option<&[usize]>) -> Result<Vec<Shape>, WrongChoice> {
    let Some(pairs) = pairs else { return Ok(experiment.shapes.to_vec()) };
    let is_pair = |shape: &Shape| matches!(shape, Shape::Chain(0) | Shape::Pairs(_));
    if !experiment.shapes.iter().all(is_pair) {
        return Err(WrongChoice::OtherRoles { experiment: experiment.name });
    }
    match pairs.iter().find(|pairs| !(1..=PAIRS_MAX).contains(*pairs)) {
        Some(&given) => Err(WrongChoice::Pairs { given }),
        None => Ok(pairs.iter().map(|&pairs| Shape::Pairs(pairs)).collect()),
    }
}

fn check_sizes(sizes: &[usize], mtu: u32) -> Result<(), WrongChoice> {
    if !(68..=9000).contains(&mtu) {
        return Err(WrongChoice::Mtu { given: mtu });
    }
    let max = FRAME_MAX.min(mtu as usize + ETHERNET_LEN);
    match sizes.iter().find(|size| !(FRAME_MIN..=max).contains(*size)) {
        Some(&given) => Err(WrongChoice::Size { given, max, mtu }),
        None => Ok(()),
    }
}

fn check_pairs(technique: Technique, shapes: &[Shape]) -> Result<(), WrongChoice> {
    match shapes.iter().map(|shape| shape.pairs()).find(|pairs| *pairs > 1) {
        Some(given) if !technique.endpoint.runs_in_pairs() => {
            Err(WrongChoice::OnePair { given, technique })
        }
        _ => Ok(()),
    }
}

/// Fails if the technique's link exists only for a runtime that was not chosen.
fn check_runtime(technique: Technique, asked: Option<&[Runtime]>) -> Result<(), WrongChoice> {
    match (technique.link.runtime(), asked) {
        (Some(own), Some(asked)) if !asked.contains(&own) => {
            Err(WrongChoice::OtherRuntime { given: asked[0], technique, own })
        }
        _ => Ok(()),
    }
}

/// Fails if the technique cannot send what the settings ask for.
fn check_load(technique: Technique, settings: &Settings, paced: bool) -> Result<(), WrongChoice> {
    let flows = settings.flows;
    let endpoint = technique.endpoint;
    if flows > 1 && endpoint.facts().writes == Unit::Payload {
        return Err(WrongChoice::OneFlow { given: flows, technique });
    }
    if endpoint.is_stream() && flows > STREAMS_MAX {
        return Err(WrongChoice::Streams { given: flows, technique });
    }
    if paced && !endpoint.takes_rate() {
        return Err(WrongChoice::NoRate { technique });
    }
    Ok(())
}

/// Returns true if all frames of the technique are between one pair of MAC addresses.
fn has_one_station(technique: Technique) -> bool {
    technique.endpoint.is_one_station() || technique.link.carries != Carries::Any
}

fn check_stations(technique: Technique, chosen: Option<u16>) -> Result<(), WrongChoice> {
    match chosen {
        Some(given @ 2..) if has_one_station(technique) => {
            Err(WrongChoice::OneStation { given, technique })
        }
        _ => Ok(()),
    }
}

/// Returns the experiment's numbers of stations that say something about the technique.
fn usual_stations(experiment: &Experiment, technique: Technique, settings: &Settings) -> Vec<u16> {
    let has_many = technique.link.learns && !has_one_station(technique) && settings.flows == 1;
    experiment.stations.iter().copied().filter(|&stations| stations == 1 || has_many).collect()
}

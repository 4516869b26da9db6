//! Testbeds: containers with everything between them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use dray_lab::link::Functions;
use dray_lab::{Cancel, Lab, LabError};
use dray_results::{Check, Distance, Noise};
use serde::{Deserialize, Serialize};

use crate::distance::{LineTimes, Pairs};
use crate::neighbour::Present;
use crate::noise::Watch;
use crate::plan::{Case, Settings};
use crate::streams::StreamTrial;
use crate::timing::Timing;
use crate::topology::{Load, Topology};
use crate::trial::{self, Trial};

/// Containers and everything between them, for cases of one technique in one topology.
pub(super) struct Testbed {
    pub(super) lab: Lab,
    /// One topology per sender/receiver pair; all with the same technique.
    pub(super) topologies: Vec<Topology>,
    /// The case for which it was built.
    case: Case,
    /// Present if the case wants a neighbour.
    neighbour: Option<Present>,
    /// Highest rates without loss found on this testbed, by frame size.
    pub(super) loss_free: BTreeMap<usize, LossFree>,
    /// Time that it took to build the testbed.
    pub(super) set_up: Duration,
    /// Other activity of the machine before the testbed existed.
    noise: Noise,
}

/// Highest rate without loss, as a search found it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LossFree {
    /// Frames per second.
    pub(crate) pps: f64,
    /// Distance between the CPUs during the search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) distance: Option<Distance>,
}

impl Testbed {
    pub(super) fn build(
        case: &Case,
        settings: &Settings,
        program: &Path,
        watch: &mut Watch,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        // As many CPUs as there are roles, and one for a switch.
        let roles = (case.shape.forwarders() + 2) * case.shape.pairs() + 1;
        let cpus = settings.placement.cpus();
        let noise = watch.measure(&cpus[..roles.min(cpus.len())], cancel)?;
        let began = Instant::now();
        let Case { mtu, runtime, .. } = *case;
        let placement = &settings.placement;
        let endpoint = case.technique.endpoint;
        endpoint.check_runtime(runtime)?;
        let program = program.to_owned();
        let mut lab =
            Lab::with_runtime(program, runtime, endpoint.facts().privileges, cancel.clone())?;
        // Frames find their way by their addresses, so that cards without VLANs do as well.
        let functions = Functions { vlan: Some(0), ..Functions::default() };
        settings.parent.iter().for_each(|card| lab.use_card(card, &functions));
        let (placement, neighbour) = match case.neighbour {
            None => (placement.clone(), None),
            Some(_) => {
                let (cpu, rest) = placement.beside_neighbour().ok_or_else(no_cpu)?;
                (rest, Some(Present::new(&mut lab, cpu.id)?))
            }
        };
        let Case { technique, shape, .. } = *case;
        let of_links = (mtu, settings.cable_bps);
        let topologies = Topology::build(&mut lab, technique, shape, &placement, of_links)?;
        let set_up = began.elapsed();
        // Checked after the build: if the switch is missing, that is the error to report.
        case.technique.check()?;
        let loss_free = BTreeMap::new();
        let case = case.clone();
        Ok(Self { lab, topologies, case, neighbour, loss_free, set_up, noise })
    }

    /// Returns true if `case` can be measured on this testbed.
    pub(super) fn serves(&self, case: &Case) -> bool {
        self.case.shares_testbed(case)
    }

    /// Runs one trial, if possible while the CPUs are at the distance `of_run`; returns it and how
    /// thoroughly its receiver checked frames.
    pub(super) fn measure(
        &mut self,
        case: &Case,
        settings: &Settings,
        timing: &Timing,
        of_run: Option<Distance>,
    ) -> Result<(Trial, Check), LabError> {
        self.wait_for(of_run, timing);
        let load = load(case, settings);
        let Self { lab, topologies, neighbour, .. } = self;
        let run = |lab: &mut Lab| trial::run(lab, topologies, &load, timing);
        let run_with_neighbour = || match (neighbour, case.neighbour) {
            (Some(present), Some(neighbour)) => {
                let (trial, rate) = present.during(lab, neighbour, &cpus(topologies), run)?;
                // The neighbour's activity is the subject of the trial, not noise.
                let noise = Noise { other_cores: 0.0, ..trial.noise };
                Ok(Trial { neighbour_bytes_per_s: Some(rate), noise, ..trial })
            }
            _ => run(lab),
        };
        let pairs = Pairs::of(topologies);
        let (mut trial, lines) = LineTimes::around(&pairs, run_with_neighbour)?;
        trial.lines = lines;
        trial.noise = Noise::of_trial(self.noise, trial.noise);
        Ok((trial, load.check))
    }

    /// Like [`Self::measure`], for byte streams.
    pub(super) fn measure_streams(
        &mut self,
        case: &Case,
        settings: &Settings,
        of_run: Option<Distance>,
    ) -> Result<(StreamTrial, Check), LabError> {
        self.wait_for(of_run, &settings.timing);
        let load = load(case, settings);
        let run = || trial::run_streams(&mut self.lab, &self.topologies, &load, &settings.timing);
        let (mut trial, lines) = LineTimes::around(&Pairs::of(&self.topologies), run)?;
        trial.lines = lines;
        trial.noise = Noise::of_trial(self.noise, trial.noise);
        Ok((trial, load.check))
    }

    /// Waits until the CPUs are at the distance `of_run`, or near each other if it is not known
    /// yet: a trial that begins elsewhere will be left out. Waits no longer than a trial takes,
    /// since CPUs may stay elsewhere.
    fn wait_for(&self, of_run: Option<Distance>, timing: &Timing) {
        const TIMEOUT_MAX: Duration = Duration::from_secs(3);
        let timeout = timing.measure.min(TIMEOUT_MAX);
        Pairs::of(&self.topologies).wait_for(of_run.unwrap_or(Distance::Near), timeout);
    }
}

/// Returns the CPUs of all roles and of the switch.
fn cpus(topologies: &[Topology]) -> Vec<usize> {
    let stations = topologies.iter().flat_map(Topology::stations).map(|station| station.cpu);
    let cpus: BTreeSet<_> = stations.chain(topologies[0].switch_cpu).collect();
    cpus.into_iter().collect()
}

fn no_cpu() -> LabError {
    let what = "no free core shares the last-level cache with the roles";
    LabError::Container { container: "neighbour".to_owned(), what: what.to_owned() }
}

fn load(case: &Case, settings: &Settings) -> Load {
    let Settings { burst, flows, .. } = *settings;
    let check = case.check.unwrap_or(case.technique.usual_check());
    let Case { size, stations, rate, .. } = *case;
    Load { size, burst, flows, stations, rate, check, timed: settings.timed }
}

//! A plan: what one run measures, case by case. It is built from an
//! [experiment](crate::experiments) and the user's [`Choices`], and always valid.

pub(crate) mod absent;
pub(crate) mod case;
pub(crate) mod choices;
mod limits;
pub(crate) mod order;
mod selection;
pub(crate) mod settings;
mod wrong_choice;

use absent::Absent;
pub use case::Case;
pub use choices::Choices;
pub use settings::Settings;
pub use wrong_choice::WrongChoice;

use dray_lab::Runtime;
use dray_lab::link::Carries;
use dray_wire::ethernet::ETHERNET_LEN;
use dray_wire::{FRAME_MAX, FRAME_MIN};

use self::limits::{PAIRS_MAX, STREAMS_MAX};
use crate::experiments::experiment::{Experiment, MachineLimit};
use crate::shape::Shape;
use crate::technique::Technique;

/// An experiment with its settings checked, ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) experiment: &'static Experiment,
    /// How the experiment is run.
    pub settings: Settings,
    /// Rows of the experiment, in the order of measurement.
    pub cases: Vec<Case>,
    /// Frame sizes for which the machine's limit is measured as well.
    pub(crate) limit_sizes: Vec<usize>,
    /// Parts that the host lacks, if they are known: cases that need them take no time.
    pub(crate) absent: Absent,
}

impl Plan {
    /// Creates a plan from the choices after checking all of them; starts nothing.
    pub fn new(experiment: &'static Experiment, choices: &Choices) -> Result<Self, WrongChoice> {
        let settings = Settings::new(experiment, choices)?;
        no_twins("--size", choices.sizes.as_deref())?;
        no_twins("--pairs", choices.pairs.as_deref())?;
        no_twins("--loss", choices.losses.as_deref())?;
        no_twins("--runtime", choices.runtimes.as_deref())?;
        let mtus = match choices.mtu {
            Some(ref mtu) => std::slice::from_ref(mtu),
            None => experiment.mtus,
        };
        let sizes = choices.sizes.as_deref().unwrap_or(experiment.sizes);
        mtus.iter().try_for_each(|&mtu| check_sizes(sizes, mtu))?;
        let shapes = shapes(experiment, choices.pairs.as_deref())?;
        let rates = match choices.rate {
            Some(_) => std::slice::from_ref(&choices.rate),
            None => experiment.rates,
        };
        // The shares refer to a rate that is still to be found.
        let shares = if choices.rate.is_some() { &[] } else { experiment.shares };
        let loads = rates.iter().map(|&rate| (rate, None));
        let loads: Vec<_> = loads.chain(shares.iter().map(|&share| (None, Some(share)))).collect();
        let checks = match choices.check {
            Some(_) => std::slice::from_ref(&choices.check),
            None => experiment.checks,
        };
        let mut techniques = selection::techniques(experiment, choices.techniques.as_deref())?;
        let paced = rates.iter().any(Option::is_some) || !settings.goals.is_empty();
        if techniques.iter().any(|technique| !technique.endpoint.is_stream()) {
            // Streams have neither rates nor stations: where these are chosen, only the other
            // endpoints run.
            let no_streams = paced || choices.stations.is_some_and(|stations| stations > 1);
            techniques.retain(|technique| !(no_streams && technique.endpoint.is_stream()));
        } else if let (Some(&[given, ..]), Some(&technique)) =
            (choices.sizes.as_deref(), techniques.first())
        {
            return Err(WrongChoice::NoSize { given, technique });
        }
        for &technique in &techniques {
            check_load(technique, &settings, paced)?;
            check_stations(technique, choices.stations)?;
            check_pairs(technique, &shapes)?;
            check_runtime(technique, choices.runtimes.as_deref())?;
        }
        if let Some(given) = choices.stations.filter(|stations| *stations > 1) {
            for shape in &shapes {
                match shape {
                    Shape::Upf(_) => return Err(WrongChoice::UpfStations { given }),
                    Shape::Ports(_) => return Err(WrongChoice::PortsStations { given }),
                    _ => {}
                }
            }
        }

        // The paper's figure is shown only beside one measured under the same conditions.
        let as_usual = (settings.burst, settings.flows) == (experiment.burst, 1);
        let as_in_paper = as_usual && choices.rate.is_none();
        let mut cases = Vec::new();
        let runtimes = choices.runtimes.as_deref().unwrap_or(experiment.runtimes);
        let by_runtime = |&technique: &Technique| {
            // Some links exist only for the containers of one runtime.
            let runtimes = technique.link.runtime().map_or(runtimes.to_vec(), |own| vec![own]);
            runtimes.into_iter().map(move |runtime| (technique, runtime))
        };
        for (technique, runtime) in techniques.iter().flat_map(by_runtime) {
            let stations = match choices.stations {
                Some(stations) => vec![stations],
                None => usual_stations(experiment, technique, &settings),
            };
            let shapes = shapes.iter().filter(|shape| shape.suits(technique));
            let places = shapes.flat_map(|s| mtus.iter().map(move |m| (s, m)));
            let places = places.flat_map(|place| stations.iter().map(move |n| (place, n)));
            for ((&shape, &mtu), &stations) in places {
                let full = [mtu as usize + ETHERNET_LEN];
                // Streams, and experiments without sizes, use the largest frames that the MTU
                // allows.
                let is_full = technique.endpoint.is_stream() || sizes.is_empty();
                for &size in if is_full { &full[..] } else { sizes } {
                    let comparable =
                        as_in_paper && stations == 1 && experiment.sizes.contains(&size);
                    let paper_pps = (experiment.paper_pps)(technique, shape).filter(|_| comparable);
                    let case = |neighbour, (rate, share), check| Case {
                        technique,
                        neighbour,
                        runtime,
                        shape,
                        mtu,
                        size,
                        stations,
                        rate,
                        share,
                        check,
                        paper_pps,
                    };
                    for &neighbour in experiment.neighbours {
                        for &load in &loads {
                            cases.extend(checks.iter().map(|&check| case(neighbour, load, check)));
                        }
                    }
                }
            }
        }
        let with_limit = match experiment.machine_limit {
            MachineLimit::Always => true,
            MachineLimit::WhereMemoryIsShared => techniques.iter().any(|t| t.link.shares_memory()),
            MachineLimit::Never => false,
        };
        let limit_sizes = if with_limit { sizes.to_vec() } else { Vec::new() };
        let absent = Absent::default();
        Ok(Self { experiment, settings, cases, limit_sizes, absent })
    }

    /// Returns the experiment of this plan.
    pub fn experiment(&self) -> &'static Experiment {
        self.experiment
    }

    /// Finds what this host lacks of the plan, for times and numbers: skipped cases take no time.
    pub fn on_this_host(self) -> Self {
        let techniques: Vec<_> = self.cases.iter().map(|case| case.technique).collect();
        self.without(Absent::of(&techniques))
    }

    fn without(self, absent: Absent) -> Self {
        Self { absent, ..self }
    }

    /// Returns true if the host is known to lack what a technique needs.
    pub(crate) fn lacks(&self, technique: Technique) -> bool {
        let needs_choice = technique.link.needs_card() && self.settings.parent.is_none();
        needs_choice || self.absent.has(technique)
    }

    /// Returns the number of different techniques that the host can run, as far as is known, and
    /// of those that it cannot run.
    pub fn techniques(&self) -> [usize; 2] {
        let is_first = |(at, case): &(usize, &Case)| {
            !self.cases[..*at].iter().any(|other| other.technique == case.technique)
        };
        let all = self.cases.iter().enumerate().filter(is_first);
        let (absent, present): (Vec<_>, Vec<_>) =
            all.partition(|(_, case)| self.lacks(case.technique));
        [present.len(), absent.len()]
    }

    /// Returns the number of trials.
    pub fn trials(&self) -> usize {
        self.settings.trials * self.cases.len()
    }
}

/// Fails if a value was chosen twice: the two rows could not be told apart.
fn no_twins<T: PartialEq + ToString>(
    option: &'static str,
    chosen: Option<&[T]>,
) -> Result<(), WrongChoice> {
    let chosen = chosen.unwrap_or_default();
    let twin = chosen.iter().enumerate().find(|(at, one)| chosen[..*at].contains(one));
    twin.map_or(Ok(()), |(_, one)| Err(WrongChoice::Twice { option, given: one.to_string() }))
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
        Some(given) if technique.endpoint.is_third_party() => {
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
    if flows > 1 && endpoint.is_one_flow() {
        return Err(WrongChoice::OneFlow { given: flows, technique });
    }
    if endpoint.is_stream() && flows > STREAMS_MAX {
        return Err(WrongChoice::Streams { given: flows, technique });
    }
    if paced && (endpoint.is_dpdk() || endpoint.is_stream()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;

    fn plan(experiment: &str, choices: &Choices) -> Result<Plan, WrongChoice> {
        Plan::new(find(experiment).unwrap(), choices)
    }

    fn of(words: &str) -> Choices {
        let words = words.split(',').map(str::to_owned).collect();
        Choices { techniques: Some(words), ..Choices::default() }
    }

    #[test]
    fn cases_are_grouped_by_technique() {
        let plan = plan("casoni2013-parallel", &Choices { trials: Some(3), ..Choices::default() });
        let plan = plan.unwrap();
        let order: Vec<_> =
            plan.cases.iter().map(|case| (case.technique.to_string(), case.shape)).collect();
        let shapes = [Shape::Fan(2), Shape::Fan(3), Shape::Fan(4)];
        let of = |technique: &'static str| shapes.map(|shape| (technique.to_owned(), shape));
        assert_eq!(order, [of("veth/raw-mmsg"), of("bridge/raw-mmsg")].concat());
        assert_eq!(plan.trials(), 3 * 6);
    }

    #[test]
    fn rate_option_replaces_experiment_rates() {
        let rates = |choices: &Choices| {
            let plan = plan("ara2019-fig2", choices).unwrap();
            plan.cases.iter().map(|case| case.rate).collect::<Vec<_>>()
        };
        assert_eq!(rates(&of("direct")).len(), 11);
        assert_eq!(rates(&Choices { rate: Some(1e5), ..of("direct") }), [Some(1e5)]);
    }

    #[test]
    fn frame_size_is_limited_by_mtu() {
        let check = |size, mtu| {
            let choices =
                Choices { sizes: Some(vec![64, size]), mtu: Some(mtu), ..Choices::default() };
            plan("all", &choices).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(check(1514, 1500), Ok(()));
        let message = check(1515, 1500).unwrap_err();
        assert!(message.contains("--size 1515") && message.contains("to 1514"), "{message}");
        assert!(check(1515, 1501).is_ok() && check(FRAME_MIN - 1, 1500).is_err());
        assert!(check(FRAME_MAX, 9000).is_ok() && check(FRAME_MAX + 1, 9000).is_err());
    }

    #[test]
    fn default_frame_size_fills_mtu() {
        let sizes = |experiment, choices: &Choices| {
            let plan = plan(experiment, choices).unwrap();
            plan.cases.iter().map(|case| (case.mtu, case.size)).collect::<Vec<_>>()
        };
        assert_eq!(sizes("all", &of("veth/tcp")), [(1500, 1514)]);
        let jumbo = Choices { mtu: Some(9000), ..of("veth/tcp") };
        assert_eq!(sizes("all", &jumbo), [(9000, 9014)]);
        let udp = Choices { pairs: Some(vec![2]), ..of("bridge") };
        assert_eq!(sizes("claassen2016-local-udp", &udp), [(1500, 1514), (9000, 9014)]);
    }

    #[test]
    fn pairs_option_replaces_topologies() {
        let shapes = |pairs: &[usize]| {
            let choices = Choices { pairs: Some(pairs.to_vec()), ..of("veth/tcp,veth/raw") };
            let cases = plan("all", &choices).map_err(|error| error.to_string())?.cases;
            Ok::<_, String>(cases.iter().map(|case| case.shape.pairs()).collect::<Vec<_>>())
        };
        assert_eq!(shapes(&[1, 128]).unwrap(), [1, 1, 128, 128, 1, 128], "raw in two sizes");
        for (wrong, words) in [(&[0][..], "--pairs 0: 1 to 128"), (&[2, 129], "--pairs 129")] {
            let message = shapes(wrong).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        let choices = Choices { pairs: Some(vec![2]), ..Choices::default() };
        let message = |experiment| plan(experiment, &choices).map(drop).unwrap_err().to_string();
        assert!(message("rtt").contains("rtt has roles other than"));
        assert!(message("switches").contains("only 1 pair is allowed"));
    }

    #[test]
    fn rate_and_flows_exclude_stream_techniques() {
        let endpoints = |choices: &Choices| {
            let cases = plan("all", choices).map_err(|error| error.to_string())?.cases;
            Ok::<_, String>(cases.iter().filter(|c| c.technique.endpoint.is_stream()).count())
        };
        assert_eq!(endpoints(&of("veth/tcp,veth/raw")), Ok(1));
        let rate = |words| Choices { rate: Some(1e5), ..of(words) };
        assert_eq!(endpoints(&rate("veth/tcp,veth/raw")), Ok(0));
        assert!(endpoints(&rate("veth/tcp")).unwrap_err().contains("cannot send at a given rate"));
        let size = |words| Choices { sizes: Some(vec![64]), ..of(words) };
        assert_eq!(endpoints(&size("veth/tcp,veth/raw")), Ok(1));
        assert!(endpoints(&size("veth/tcp")).unwrap_err().contains("--size 64: veth/tcp"));
        let flows = Choices { flows: Some(257), ..of("veth/tcp") };
        assert!(endpoints(&flows).unwrap_err().contains("1 to 256 streams"));
    }

    #[test]
    fn unsupported_flows_stations_and_rate_are_refused() {
        let message = |experiment, choices: &Choices| match plan(experiment, choices) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        let flows = |words| Choices { flows: Some(2), ..of(words) };
        assert!(message("all", &flows("veth")).contains("--flows 2: veth/udp sends one flow"));
        assert_eq!(message("all", &flows("raw")), "");
        let stations = |words| Choices { stations: Some(2), ..of(words) };
        assert!(message("all", &stations("udp")).contains("--stations 2: veth/udp sends from one"));
        assert!(message("all", &stations("raw")).contains("macvlan/bridge/raw sends from one"));
        assert_eq!(message("all", &stations("veth/raw,switch")), "");
        let rate = |words| Choices { rate: Some(1e5), ..of(words) };
        assert!(message("switches", &rate("dpdk")).contains("cannot send at a given rate"));
        assert_eq!(message("switches", &rate("switch")), "");
    }

    #[test]
    fn many_stations_only_on_links_that_learn() {
        let stations = |words, choices: &Choices| {
            let choices = Choices { sizes: Some(vec![64]), ..choices.clone() };
            let techniques = of(words).techniques;
            let plan = plan("switches", &Choices { techniques, ..choices }).unwrap();
            plan.cases.iter().map(|case| case.stations).collect::<Vec<_>>()
        };
        let usual = Choices::default();
        for learning in ["switch/learning/virtio", "ovs-dpdk/learning/virtio", "vpp/memif/memif"] {
            assert_eq!(stations(learning, &usual), [1, 1000], "{learning}");
        }
        for other in ["switch/patch/virtio", "testpmd/pairs/virtio", "switch/learning/dpdk"] {
            assert_eq!(stations(other, &usual), [1], "{other}");
        }
        let learning = "switch/learning/virtio";
        assert_eq!(stations(learning, &Choices { flows: Some(2), ..usual.clone() }), [1]);
        assert_eq!(stations(learning, &Choices { stations: Some(7), ..usual.clone() }), [7]);
        // Cases with the same number of stations are adjacent: they share a testbed.
        let both = Choices { techniques: Some(vec![learning.to_owned()]), ..usual };
        let cases = plan("switches", &both).unwrap().cases;
        let cases: Vec<_> = cases.iter().map(|case| (case.stations, case.size)).collect();
        let of = |stations| [64, 512, 1500].map(|size| (stations, size));
        assert_eq!(cases, [of(1), of(1000)].concat());
    }

    #[test]
    fn cases_cover_each_runtime_and_its_links() {
        let runtimes = |words, asked: &[Runtime]| {
            let choices = Choices { runtimes: Some(asked.to_vec()), ..of(words) };
            let cases = plan("all", &choices).map_err(|error| error.to_string())?.cases;
            let of = |case: &Case| (case.technique.to_string(), case.runtime);
            Ok::<_, String>(cases.iter().map(of).collect::<Vec<_>>())
        };
        let (docker, lxc) = (Runtime::Docker, Runtime::Lxc);
        let case = |technique: &str, runtime| (technique.to_owned(), runtime);
        assert_eq!(
            runtimes("veth/tcp,docker/bridge/tcp", &[lxc, docker]).unwrap(),
            [case("veth/tcp", lxc), case("veth/tcp", docker), case("docker/bridge/tcp", docker)]
        );
        let message = runtimes("docker/bridge", &[lxc]).unwrap_err();
        assert!(
            message.contains("--runtime lxc: docker/bridge/udp is a link of docker containers"),
            "{message}"
        );
        // The runtime need not be chosen.
        let cases = plan("all", &of("docker/bridge/tcp")).unwrap().cases;
        assert_eq!(cases.iter().map(|case| case.runtime).collect::<Vec<_>>(), [docker]);
        assert!(plan("all", &of("tcp")).unwrap().cases.iter().all(|c| c.runtime != docker));
    }

    #[test]
    fn paper_figure_requires_same_settings() {
        let figures = |choices: &Choices| {
            let plan = plan("ara2019-table1", choices).unwrap();
            plan.cases.iter().filter_map(|case| case.paper_pps).collect::<Vec<_>>()
        };
        let all = [227e3, 276e3, 471e3, 594e3];
        assert_eq!(figures(&Choices::default()), all, "of the bridge");
        assert_eq!(figures(&Choices { burst: Some(64), trials: Some(2), ..of("bridge") }), all);
        assert_eq!(figures(&Choices { sizes: Some(vec![64, 65]), ..of("bridge/raw") }), [471e3]);
        for choices in [
            Choices { burst: Some(32), ..of("bridge") },
            Choices { rate: Some(1e5), ..of("bridge") },
            Choices { flows: Some(2), ..of("bridge/raw") },
            Choices { stations: Some(2), ..of("bridge/raw") },
            of("veth"),
        ] {
            assert!(figures(&choices).is_empty(), "{choices:?}");
        }
    }

    #[test]
    fn machine_limit_only_for_shared_memory_rates() {
        let sizes = |experiment, choices: &Choices| plan(experiment, choices).unwrap().limit_sizes;
        assert!(sizes("all", &of("veth")).is_empty());
        assert_eq!(sizes("all", &of("veth,direct")), [64, 1500]);
        assert!(sizes("rtt", &of("direct")).is_empty());
        assert_eq!(
            sizes("limit", &Choices { sizes: Some(vec![100]), ..Choices::default() }),
            [100]
        );
    }
}

//! A plan: what one run measures, case by case. It is built from an
//! [experiment](crate::experiments) and the user's [`Choices`], and always valid.

pub(crate) mod absent;
pub(crate) mod case;
pub(crate) mod choices;
mod dimensions;
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

use self::dimensions::Dimensions;
use crate::experiments::experiment::{Experiment, MachineLimit};
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
        let dimensions = Dimensions::new(experiment, choices, &settings)?;
        dimensions.check(choices, &settings)?;
        let has_cable = |technique: &Technique| technique.link.is_between_hosts();
        if let (Some(given), false) = (choices.cable, dimensions.techniques.iter().any(has_cable)) {
            return Err(WrongChoice::NoCable { given });
        }
        let with_limit = match experiment.machine_limit {
            MachineLimit::Always => true,
            MachineLimit::WhereMemoryIsShared => {
                dimensions.techniques.iter().any(|technique| technique.link.shares_memory())
            }
            MachineLimit::Never => false,
        };
        let limit_sizes = if with_limit { dimensions.sizes.to_vec() } else { Vec::new() };
        let cases = dimensions.cases(experiment, choices, &settings);
        Ok(Self { experiment, settings, cases, limit_sizes, absent: Absent::default() })
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

#[cfg(test)]
mod tests {
    use dray_lab::Runtime;
    use dray_wire::{FRAME_MAX, FRAME_MIN};

    use super::*;
    use crate::experiments::find;
    use crate::shape::Shape;

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
        assert_eq!(
            order,
            [of("veth/raw-mmsg"), of("bridge/raw-mmsg"), of("switch/learning")].concat()
        );
        assert_eq!(plan.trials(), 3 * 9);
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
        let udp = Choices { pairs: Some(vec![2]), ..of("bridge/udp") };
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

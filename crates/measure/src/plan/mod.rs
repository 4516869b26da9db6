//! A plan: what one run measures, case by case. It is made of an [experiment](crate::experiments)
//! and the user's [`Choices`], and of nothing that is not right.

mod case;
mod choices;
mod selection;
mod settings;
mod wrong_choice;

pub use case::Case;
pub use choices::Choices;
pub use settings::Settings;
pub use wrong_choice::WrongChoice;

use dray_wire::headers::ETHERNET_LEN;
use dray_wire::{FRAME_MAX, FRAME_MIN};

use crate::Technique;
use crate::experiments::{Experiment, MachineLimit};

/// An experiment with its settings checked, ready to run.
#[derive(Debug)]
pub struct Plan {
    pub(crate) experiment: &'static Experiment,
    /// How it is run.
    pub settings: Settings,
    /// Its rows, in the order in which they are measured.
    pub cases: Vec<Case>,
    /// Sizes for which the machine's limit is measured as well.
    pub(crate) limit_sizes: Vec<usize>,
}

impl Plan {
    /// Checks the choices. Nothing is started before everything has been checked.
    pub fn new(experiment: &'static Experiment, choices: &Choices) -> Result<Self, WrongChoice> {
        let settings = Settings::new(experiment, choices)?;
        let sizes = choices.sizes.as_deref().unwrap_or(experiment.sizes);
        check_sizes(sizes, settings.mtu)?;
        let rates = match choices.rate {
            Some(_) => std::slice::from_ref(&choices.rate),
            None => experiment.rates,
        };
        let techniques = selection::techniques(experiment, choices.techniques.as_deref())?;
        let paced = rates.iter().any(Option::is_some) || !settings.goals.is_empty();
        techniques.iter().try_for_each(|technique| check_load(*technique, &settings, paced))?;

        // A figure of the paper stands beside one that was measured as it was.
        let as_usual =
            (settings.burst, settings.flows, settings.stations) == (experiment.burst, 1, 1);
        let as_in_paper = as_usual && choices.rate.is_none();
        let mut cases = Vec::new();
        for &technique in &techniques {
            for &shape in experiment.shapes {
                for &size in sizes {
                    let comparable = as_in_paper && experiment.sizes.contains(&size);
                    let paper_pps = (experiment.paper_pps)(technique, shape).filter(|_| comparable);
                    let case = |&rate| Case { technique, shape, size, rate, paper_pps };
                    cases.extend(rates.iter().map(case));
                }
            }
        }
        let with_limit = match experiment.machine_limit {
            MachineLimit::Always => true,
            MachineLimit::WhereMemoryIsShared => techniques.iter().any(|t| t.link.shares_memory()),
            MachineLimit::Never => false,
        };
        let limit_sizes = if with_limit { sizes.to_vec() } else { Vec::new() };
        Ok(Self { experiment, settings, cases, limit_sizes })
    }

    /// How many trials there are.
    pub fn trials(&self) -> usize {
        self.settings.trials * self.cases.len()
    }
}

fn check_sizes(sizes: &[usize], mtu: u32) -> Result<(), WrongChoice> {
    let max = FRAME_MAX.min(mtu as usize + ETHERNET_LEN);
    match sizes.iter().find(|size| !(FRAME_MIN..=max).contains(*size)) {
        Some(&given) => Err(WrongChoice::Size { given, max, mtu }),
        None => Ok(()),
    }
}

/// Whether a technique can send what the settings ask for.
fn check_load(technique: Technique, settings: &Settings, paced: bool) -> Result<(), WrongChoice> {
    let Settings { flows, stations, .. } = *settings;
    let endpoint = technique.endpoint;
    if flows > 1 && endpoint.is_one_flow() {
        return Err(WrongChoice::OneFlow { given: flows, technique });
    }
    if stations > 1 && endpoint.is_one_station() {
        return Err(WrongChoice::OneStation { given: stations, technique });
    }
    if paced && endpoint.is_dpdk() {
        return Err(WrongChoice::NoRate { technique });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::experiments::find;

    fn plan(experiment: &str, choices: &Choices) -> Result<Plan, WrongChoice> {
        Plan::new(find(experiment).unwrap(), choices)
    }

    fn of(words: &str) -> Choices {
        let words = words.split(',').map(str::to_owned).collect();
        Choices { techniques: Some(words), ..Choices::default() }
    }

    #[test]
    fn a_technique_has_all_its_cases_before_the_next_has_any() {
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
    fn a_rate_of_the_users_replaces_those_of_the_experiment() {
        let rates = |choices: &Choices| {
            let plan = plan("ara2019-fig2", choices).unwrap();
            plan.cases.iter().map(|case| case.rate).collect::<Vec<_>>()
        };
        assert_eq!(rates(&of("direct")).len(), 11);
        assert_eq!(rates(&Choices { rate: Some(1e5), ..of("direct") }), [Some(1e5)]);
    }

    #[test]
    fn a_frame_fits_into_the_mtu() {
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
    fn what_a_technique_cannot_send_is_not_asked_of_it() {
        let message = |experiment, choices: &Choices| match plan(experiment, choices) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        let flows = |words| Choices { flows: Some(2), ..of(words) };
        assert!(message("all", &flows("veth")).contains("--flows 2: veth/udp sends one flow"));
        assert_eq!(message("all", &flows("raw")), "");
        let stations = |words| Choices { stations: Some(2), ..of(words) };
        assert!(message("all", &stations("udp")).contains("--stations 2: veth/udp sends from one"));
        assert_eq!(message("all", &stations("raw,switch")), "");
        let rate = |words| Choices { rate: Some(1e5), ..of(words) };
        assert!(message("switches", &rate("dpdk")).contains("at no given rate"));
        assert_eq!(message("switches", &rate("switch")), "");
    }

    #[test]
    fn the_papers_figure_stands_only_beside_one_that_was_measured_as_it_was() {
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
    fn the_machines_limit_is_measured_where_it_says_something() {
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

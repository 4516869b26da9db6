//! Selection of an experiment's techniques by the user's words.

use super::wrong_choice::WrongChoice;
use crate::experiments::experiment::Experiment;
use crate::experiments::{DEFAULT, EXPERIMENTS};
use crate::technique::{Technique, names};

/// Returns the experiment's techniques that `words` select, in the experiment's order; without
/// words, its usual ones.
pub(super) fn techniques(
    experiment: &Experiment,
    words: Option<&[String]>,
) -> Result<Vec<Technique>, WrongChoice> {
    let own = (experiment.techniques)();
    let Some(words) = words else { return Ok(own.into_iter().filter(experiment.usual).collect()) };
    for word in words {
        Technique::check_name(word)?;
        if !experiment.has(word) {
            return Err(WrongChoice::TechniqueOfAnother {
                experiment: experiment.name,
                given: word.clone(),
                advice: elsewhere(experiment, word),
            });
        }
    }
    let is_chosen = |technique: &Technique| words.iter().any(|word| technique.is_called(word));
    Ok(own.into_iter().filter(is_chosen).collect())
}

/// Returns the commands that measure what `word` selects, and what `experiment` measures instead.
fn elsewhere(experiment: &Experiment, word: &str) -> String {
    let own = (experiment.techniques)();
    let links = names(own.iter().map(|technique| technique.link.name));
    let endpoints = names(own.iter().map(|technique| technique.endpoint.name));
    let instead = match experiment.name {
        DEFAULT => String::new(),
        _ => format!("it measures links {links} with endpoints {endpoints}; "),
    };
    if let Some(command) = command(word) {
        return format!("{instead}{word} is measured by: {command}");
    }
    let every = Technique::every();
    let endpoint = every.iter().find(|it| it.is_called(word)).map_or("", |it| it.endpoint.name);
    let command = command(endpoint).unwrap_or_default();
    format!("{instead}no experiment does; {endpoint} on other links is measured by: {command}")
}

/// Returns the command of the first experiment that measures `word`, and the other experiments.
fn command(word: &str) -> Option<String> {
    let mut having = EXPERIMENTS.iter().filter(|other| other.has(word)).map(|other| other.name);
    let name = having.next()?;
    let name = if name == DEFAULT { String::new() } else { format!(" {name}") };
    let also = names(having);
    let also = if also.is_empty() { also } else { format!(" (also in {also})") };
    Some(format!("dray bench{name} --technique {word}{also}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;

    fn select(experiment: &str, words: &[&str]) -> Result<Vec<String>, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let chosen = techniques(find(experiment).unwrap(), Some(&words));
        let chosen = chosen.map_err(|error| error.to_string())?;
        Ok(chosen.iter().map(Technique::to_string).collect())
    }

    #[test]
    fn selected_techniques_are_unique_and_in_order() {
        let chosen = select("af-xdp", &["bridge", "raw-mmsg", "bridge/afxdp"]).unwrap();
        let bridge = ["raw-mmsg", "afxdp", "afxdp-deferred", "afxdp-generic", "dpdk-afxdp"];
        let bridge = bridge.map(|endpoint| format!("bridge/{endpoint}"));
        assert_eq!(chosen, [&["veth/raw-mmsg".to_owned()][..], &bridge].concat());
    }

    #[test]
    fn technique_of_another_experiment_is_reported_with_its_command() {
        let message = |experiment, word| select(experiment, &[word]).unwrap_err();
        let testpmd = message("all", "testpmd/pairs");
        let expected = "experiment all does not measure testpmd/pairs; testpmd/pairs is measured by: \
                        dray bench switches --technique testpmd/pairs (also in loss-free, rtt, ";
        assert!(testpmd.starts_with(expected), "{testpmd}");
        let smc = message("all", "veth/smc");
        assert!(smc.ends_with("is measured by: dray bench streams --technique veth/smc"), "{smc}");
        let message = message("ara2019-table1", "direct");
        assert!(
            message.contains(
                "it measures links veth, bridge with endpoints udp, udp-mmsg, raw, raw-mmsg, udp-zerocopy, \
                 raw-ring; \
                 direct is measured by: dray bench --technique direct (also in "
            ),
            "{message}"
        );
        let message = select("ara2019-table1", &["tokenring"]).unwrap_err();
        assert!(message.contains("unknown technique \"tokenring\""), "{message}");
    }

    #[test]
    fn unused_technique_error_names_the_use_of_its_endpoint() {
        let message = select("all", &["macvlan/bridge/smc"]).unwrap_err();
        let expected = "experiment all does not measure macvlan/bridge/smc; no experiment does; smc \
                        on other links is measured by: dray bench streams --technique smc";
        assert_eq!(message, expected);
        let endpoints = Technique::every().into_iter().map(|technique| technique.endpoint);
        assert!(endpoints.into_iter().all(|it| command(it.name).is_some()));
    }
}

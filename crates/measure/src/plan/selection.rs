//! Selection of an experiment's techniques by the user's words.

use super::wrong_choice::WrongChoice;
use crate::experiments::experiment::Experiment;
use crate::technique::Technique;

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
                links: names(own.iter().map(|technique| technique.link.name)),
                endpoints: names(own.iter().map(|technique| technique.endpoint.name)),
            });
        }
    }
    let is_chosen = |technique: &Technique| words.iter().any(|word| technique.is_called(word));
    Ok(own.into_iter().filter(is_chosen).collect())
}

/// Joins the names in their order, without duplicates.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found.join(", ")
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
    fn unused_technique_error_lists_allowed() {
        let message = select("ara2019-table1", &["veth", "direct"]).unwrap_err();
        assert!(message.contains("ara2019-table1 does not use direct"), "{message}");
        let ends = "it uses the links veth, bridge, and the endpoints udp, udp-mmsg, raw, raw-mmsg";
        assert!(message.ends_with(ends), "{message}");
        let message = select("ara2019-table1", &["tokenring"]).unwrap_err();
        assert!(message.contains("unknown technique \"tokenring\""), "{message}");
    }
}

//! Techniques that a host cannot run.

use dray_lab::LinkKind;
use dray_lab::link::missing;

use crate::endpoint::Requirement;
use crate::technique::Technique;

/// Parts that a host is known to lack; by default none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absent {
    links: Vec<LinkKind>,
    requirements: Vec<Requirement>,
}

impl Absent {
    /// Finds what this host lacks of what `techniques` need. Programs that none of them needs are
    /// not started.
    pub(super) fn of(techniques: &[Technique]) -> Self {
        let mut required = Vec::new();
        for requirement in techniques.iter().filter_map(|it| it.endpoint.facts().requires) {
            if !required.contains(&requirement) {
                required.push(requirement);
            }
        }
        Self {
            links: missing(techniques.iter().map(|technique| technique.link).collect()),
            requirements: required.into_iter().filter(|it| !it.is_met()).collect(),
        }
    }

    /// Returns true if a technique needs something that the host lacks.
    pub(super) fn has(&self, technique: Technique) -> bool {
        let requires = technique.endpoint.facts().requires;
        self.links.contains(&technique.link)
            || requires.is_some_and(|requirement| self.requirements.contains(&requirement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;
    use crate::plan::{Choices, Plan};

    #[test]
    fn absent_techniques_take_no_time() {
        let plan = |technique: &str| {
            let techniques = Some(vec![technique.to_owned()]);
            let choices = Choices { techniques, ..Choices::default() };
            Plan::new(find("all").unwrap(), &choices).unwrap()
        };
        let lacks_veth = Absent { links: vec![LinkKind::VETH], ..Absent::default() };
        let veth = plan("veth/udp");
        assert_eq!(veth.techniques(), [1, 0]);
        assert!(!veth.duration().is_zero());
        let veth = veth.without(lacks_veth.clone());
        assert_eq!((veth.techniques(), veth.duration()), ([0, 1], std::time::Duration::ZERO));
        let bridge = plan("bridge/udp");
        assert_eq!(bridge.clone().without(lacks_veth).duration(), bridge.duration());
        // Without --parent there is no card.
        assert_eq!(plan("sriov").techniques()[0], 0);
    }
}

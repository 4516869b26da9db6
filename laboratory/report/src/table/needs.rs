//! Resources that techniques need.

use std::collections::BTreeMap;

use dray_results::{Interval, Needs, Results, SetUp, stats};

use super::cell::{head, or_dash};
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::{align, fit, wrapped};

/// Formats a row for each technique: how long its setup takes, and what it then holds and needs.
pub(super) fn table(results: &Results) -> String {
    let needs = results.measured();
    let needs = needs.filter_map(|it| Some((it.technique, it.setting.needs.as_ref()?)));
    let found: Vec<(&str, &Needs)> = needs.collect();
    let mut cells = head(
        "technique|ready|±|link|ports|memory|switch|files|switch|huge",
        "|ms|%|ms|ms|MiB|MiB|||MiB",
    );
    let mut privileges = head("technique|privileges", "|in the container; on the host");
    for technique in distinct(&found, |(technique, _)| *technique) {
        let Some((_, needs)) = found.iter().find(|(other, _)| *other == technique) else {
            continue;
        };
        let milliseconds = |of: fn(&SetUp) -> f64| {
            needs.set_ups.iter().map(|set_up| 1e3 * of(set_up)).collect::<Vec<_>>()
        };
        let mean = |of| format!("{:.1}", stats::mean(&milliseconds(of)));
        let ready = milliseconds(SetUp::sum_s);
        let (of_roles, of_switch) = split(&needs.memory_bytes);
        let (files, files_of_switch) = split(&needs.file_descriptors);
        let mebibytes =
            |bytes: Option<u64>| or_dash(bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)), 1);
        let count = |count: Option<usize>| count.map_or("-".to_owned(), |count| count.to_string());
        let capabilities: Vec<_> =
            needs.capabilities.iter().map(|name| name.trim_start_matches("CAP_")).collect();
        let inside = if capabilities.is_empty() { "none".into() } else { capabilities.join(" ") };
        privileges.push(vec![technique.to_owned(), format!("{inside}; {}", needs.on_host)]);
        cells.push(vec![
            technique.to_owned(),
            mean(SetUp::sum_s),
            spread(Interval::of(&ready)),
            mean(|set_up| set_up.link_s),
            mean(|set_up| set_up.ports_s),
            mebibytes(of_roles),
            mebibytes(of_switch),
            count(files),
            count(files_of_switch),
            needs.hugepages_mib.to_string(),
        ]);
    }
    fit(&cells, 1, 1, &[1])
        + &wrapped(
            "ready: time until containers, link and ports are ready. memory, files: of both roles \
             together, and of the switch; kernel buffers not included.",
        )
        + "\n"
        + &align(&privileges, 2, 2)
}

/// Returns the sum over the roles and the value of the switch, as far as they are known.
fn split<T: Copy + std::iter::Sum<T>>(by_role: &BTreeMap<String, T>) -> (Option<T>, Option<T>) {
    let roles: Vec<T> =
        by_role.iter().filter(|(role, _)| *role != "switch").map(|(_, value)| *value).collect();
    let sum = (!roles.is_empty()).then(|| roles.into_iter().sum());
    (sum, by_role.get("switch").copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_sum_roles_without_switch() {
        let by = |roles: &[(&str, u64)]| {
            split(&roles.iter().map(|(role, value)| ((*role).to_owned(), *value)).collect())
        };
        assert_eq!(by(&[("receiver", 2), ("sender", 3), ("switch", 4)]), (Some(5), Some(4)));
        assert_eq!(by(&[("switch", 4)]), (None, Some(4)));
        assert_eq!(by(&[]), (None, None));
    }
}

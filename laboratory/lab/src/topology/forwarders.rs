//! Finds forwarding cycles between containers.

use super::command::dray_call;
use super::plan::{EndPlan, Topology};
use crate::link::{Carries, EndKind};

/// A forwarder that passes frames from one link to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    container: String,
    from: usize,
    to: usize,
}

/// Returns the words of a [call of `dray`](dray_call), with its variables replaced by their values,
/// or by placeholders of the same form.
pub(super) fn dray_words(topology: &Topology, container: &str, line: &str) -> Option<Vec<String>> {
    let mut line = line.to_owned();
    // Starts with the last port, since PORT1 is a prefix of PORT10.
    let mut ports: Vec<_> = topology.ports(container).collect();
    ports.reverse();
    for (link, end) in ports {
        // As in a shell, an unset variable is empty.
        let address = |end: &EndPlan| match end.address {
            Some(address) => address.to_string(),
            None if link.kind.carries == Carries::OwnIp => "198.18.0.1".to_owned(),
            None => String::new(),
        };
        let peer = link.ends.iter().find(|other| *other != end && link.ends.len() == 2);
        let is_device = link.kind.switch().is_none() && link.ends.first() != Some(end);
        let scheme = match link.kind.end() {
            EndKind::Machine => "tap:",
            EndKind::Interface => "raw:",
            EndKind::UnixSocket => "unix:/",
            EndKind::Netmap => "netmap:vale:",
            EndKind::Memory(_) if is_device => "vhost:/",
            EndKind::Memory(_) => "virtio:/",
            EndKind::Function => unreachable!("no link has only functions without an interface"),
        };
        let uri = format!("{scheme}{}", end.name);
        let (port, mac) = (end.port, "02:00:00:00:00:01");
        for (name, value) in [
            ("PEER_ADDRESS", peer.map_or_else(String::new, address)),
            ("PEER_MAC", peer.map_or("", |_| mac).to_owned()),
            ("ADDRESS", address(end)),
            ("MAC", mac.to_owned()),
            ("PORT", uri),
        ] {
            line = line.replace(&format!("${name}{port}"), &value);
        }
    }
    dray_call(&line).filter(|_| !line.contains('$'))
}

/// Returns the edges of the forwarder that `words` start, if they start one.
pub(super) fn edges(topology: &Topology, container: &str, words: &[String]) -> Vec<Edge> {
    if words.get(1).map(String::as_str) != Some("forward") {
        return Vec::new();
    }
    let option = |name: &str| {
        let at = words.iter().position(|word| word == name).map(|at| at + 1);
        let joined = || words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        at.and_then(|at| words.get(at).map(String::as_str)).or_else(joined)
    };
    let link = |uri: &str| {
        let port = uri.split_once(':')?.1.split('?').next()?.trim_start_matches('/');
        topology.links.iter().position(|link| {
            let here = |end: &EndPlan| end.container == container && end.name == port;
            link.ends.iter().any(here)
        })
    };
    let ends = (option("--from").and_then(link), option("--to").and_then(link));
    let (Some(from), Some(to)) = ends else { return Vec::new() };
    let edge = |from, to| Edge { container: container.to_owned(), from, to };
    let back = words.iter().any(|word| word == "--both-ways").then(|| edge(to, from));
    [edge(from, to)].into_iter().chain(back).collect()
}

/// Returns the containers of the forwarders that form a cycle, if there is one.
pub(super) fn find_cycle(edges: &[Edge]) -> Option<Vec<String>> {
    let mut done = vec![false; edges.len()];
    let mut path = Vec::new();
    let cycle = (0..edges.len()).find_map(|start| follow(edges, start, &mut path, &mut done))?;
    Some(cycle.into_iter().map(|edge| edges[edge].container.clone()).collect())
}

/// Returns the cycle through `edge` that closes at an edge of `path`. A container does not receive
/// the frames that it sent into a link.
fn follow(
    edges: &[Edge],
    edge: usize,
    path: &mut Vec<usize>,
    done: &mut [bool],
) -> Option<Vec<usize>> {
    if let Some(at) = path.iter().position(|&before| before == edge) {
        return Some(path[at..].to_vec());
    }
    if done[edge] {
        return None;
    }
    path.push(edge);
    let next = |other: &usize| {
        edges[*other].from == edges[edge].to && edges[*other].container != edges[edge].container
    };
    let cycle = (0..edges.len()).filter(next).find_map(|next| follow(edges, next, path, done));
    path.pop();
    done[edge] = true;
    cycle
}

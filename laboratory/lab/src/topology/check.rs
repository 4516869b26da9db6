//! Checks a topology file before anything is created from it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use toml::Spanned;

use super::file::{self, File, Wrong, at};
use super::network::{Network, NetworkError};
use super::plan::{ContainerPlan, EndPlan, HOST, LinkPlan, Topology};
use super::{card, forwarders};
use crate::LinkKind;

/// Same limits as `dray bench`.
const MTUS: std::ops::RangeInclusive<u32> = 68..=9000;
const MTU: u32 = 1500;
const CONTAINERS_MAX: usize = 1024;
/// Maximum number of ports of a bridge.
const ENDS_MAX: usize = 1023;
const LINKS_MAX: usize = 4096;

pub(super) fn check(
    file: &File,
    stem: &str,
    cpus: &[usize],
    check_command: &dyn Fn(&[String]) -> Result<(), String>,
) -> Result<Topology, Wrong> {
    let name = match &file.name {
        Some(name) => {
            check_name(name.get_ref()).map_err(|what| at(name, format!("name = {what}")))?;
            name.get_ref().clone()
        }
        None => {
            let advice = |what| format!("no name, and the file name cannot be used: {what}");
            check_name(stem).map_err(|what| Wrong { at: None, what: advice(what) })?;
            stem.to_owned()
        }
    };
    let containers = check_containers(&file.containers, cpus)?;
    if file.links.len() > LINKS_MAX {
        let what = format!("{} links; at most {LINKS_MAX} are allowed", file.links.len());
        return Err(at(&file.links[LINKS_MAX], what));
    }
    let mut links = Vec::new();
    let mut ports = Ports::default();
    for link in &file.links {
        links.push(check_link(link.get_ref(), &containers, cpus, &mut ports)?);
    }
    let is_program =
        |link: &&Spanned<file::Link>| kind(link.get_ref()).is_ok_and(LinkKind::has_program);
    if let Some(second) = file.links.iter().filter(is_program).nth(1) {
        let what =
            "second switch that is a program; a lab can have only one: put its ends at the first";
        return Err(at(&second.get_ref().kind, what));
    }
    let topology = Topology { name, containers, links };
    check_commands(file, &topology, check_command)?;
    Ok(topology)
}

/// Checks the name of a lab or container, which becomes a host name, a file name and the name of a
/// control group. The error says what is allowed.
pub fn check_name(name: &str) -> Result<(), String> {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
    let right = name.len() <= 63
        && name.bytes().all(known)
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rule = "give 1 to 63 of A-Z a-z 0-9 _ -, beginning with a letter or digit";
    if right { Ok(()) } else { Err(format!("{name:?}: {rule}")) }
}

fn check_containers(
    written: &[Spanned<file::Container>],
    cpus: &[usize],
) -> Result<Vec<ContainerPlan>, Wrong> {
    if written.is_empty() {
        let what = "no containers: give [[containers]] with a name each".to_owned();
        return Err(Wrong { at: None, what });
    }
    if written.len() > CONTAINERS_MAX {
        let what = format!("{} containers; at most {CONTAINERS_MAX} are allowed", written.len());
        return Err(at(&written[CONTAINERS_MAX], what));
    }
    let mut containers: Vec<ContainerPlan> = Vec::new();
    for container in written.iter().map(Spanned::get_ref) {
        let name = container.name.get_ref();
        check_name(name).map_err(|what| at(&container.name, format!("container {what}")))?;
        if name == HOST {
            let what = "container name \"host\" is reserved: it stands for the host";
            return Err(at(&container.name, what));
        }
        if containers.iter().any(|other| other.name == *name) {
            let what = format!("duplicate container name {name:?}; give each its own");
            return Err(at(&container.name, what));
        }
        for cpu in &container.cpus {
            check_cpu(cpu, cpus).map_err(|what| at(cpu, format!("container {name:?}: {what}")))?;
        }
        containers.push(ContainerPlan {
            name: name.clone(),
            cpus: container.cpus.iter().map(|cpu| *cpu.get_ref()).collect(),
            run: container.run.as_ref().map(|run| run.get_ref().clone()),
        });
    }
    Ok(containers)
}

fn check_cpu(cpu: &Spanned<usize>, cpus: &[usize]) -> Result<(), String> {
    if cpus.contains(cpu.get_ref()) {
        return Ok(());
    }
    let there: Vec<_> = cpus.iter().map(usize::to_string).collect();
    Err(format!("no CPU {}; give some of {}", cpu.get_ref(), there.join(", ")))
}

fn kind(link: &file::Link) -> Result<LinkKind, Wrong> {
    let kinds = || {
        let ours = LinkKind::ALL.into_iter().chain(LinkKind::SWITCH_SOCKETS);
        ours.chain([LinkKind::VXLAN_PATCH]).chain(LinkKind::NETMAP).chain(LinkKind::PEERS)
    };
    kinds().find(|kind| kind.name == link.kind.get_ref()).ok_or_else(|| {
        let given = link.kind.get_ref();
        let advice = dray_text::advice(given, kinds().map(|kind| kind.name));
        at(&link.kind, format!("unknown link kind {given:?}: {advice}"))
    })
}

/// Number of ports and of interfaces that each container has so far.
#[derive(Default)]
struct Ports(BTreeMap<String, (usize, usize)>);

impl Ports {
    fn next(&mut self, container: &str, kind: LinkKind) -> EndPlan {
        let (ports, interfaces) = self.0.entry(container.to_owned()).or_default();
        let port = *ports;
        *ports += 1;
        let name = if !kind.has_interfaces() {
            format!("socket{port}")
        } else {
            *interfaces += 1;
            format!("eth{}", *interfaces - 1)
        };
        EndPlan { container: container.to_owned(), port, name, address: None }
    }
}

fn check_link(
    link: &file::Link,
    containers: &[ContainerPlan],
    cpus: &[usize],
    ports: &mut Ports,
) -> Result<LinkPlan, Wrong> {
    let kind = kind(link)?;
    check_ends(link, kind, containers)?;
    let mut ends: Vec<_> =
        link.ends.get_ref().iter().map(|end| ports.next(end.get_ref(), kind)).collect();
    if ends.len() % 2 == 1 && kind.has_interfaces() {
        // Links are created in pairs of ends: for an odd end, the other interface is the host's.
        ports.0.entry(HOST.to_owned()).or_default().1 += 1;
    }
    let network = check_network(link, kind)?;
    if let Some(network) = network {
        let addresses = check_addresses(link, network)?;
        ends.iter_mut().zip(addresses).for_each(|(end, address)| end.address = Some(address));
    }
    let mtu = match &link.mtu {
        Some(mtu) if !MTUS.contains(mtu.get_ref()) => {
            let what = format!("mtu = {}: give {} to {}", mtu.get_ref(), MTUS.start(), MTUS.end());
            return Err(at(mtu, what));
        }
        mtu => mtu.as_ref().map_or(MTU, |mtu| *mtu.get_ref()),
    };
    if let Some(cpu) = &link.cpu {
        if kind.switch().is_none() {
            let what = format!("cpu: a {kind} link has no switch in user space; leave it out");
            return Err(at(cpu, what));
        }
        check_cpu(cpu, cpus).map_err(|what| at(cpu, format!("cpu: {what}")))?;
    }
    let functions = card::check(link, kind)?;
    if link.xdp_programs && !kind.name.starts_with("xdp/") {
        let what = format!("xdp_programs: only for xdp/ links; on a {kind} link leave it out");
        return Err(at(&link.kind, what));
    }
    let cpu = link.cpu.as_ref().map(|cpu| *cpu.get_ref());
    let parent = link.parent.as_ref().map(|parent| parent.get_ref().clone());
    let xdp_programs = link.xdp_programs;
    Ok(LinkPlan { kind, ends, network, mtu, cpu, parent, functions, xdp_programs })
}

fn check_ends(
    link: &file::Link,
    kind: LinkKind,
    containers: &[ContainerPlan],
) -> Result<(), Wrong> {
    let ends = link.ends.get_ref();
    for (number, end) in ends.iter().enumerate() {
        let name = end.get_ref();
        if name != HOST && !containers.iter().any(|container| container.name == *name) {
            let names = containers.iter().map(|container| container.name.as_str());
            let advice = dray_text::advice(name, names.chain([HOST]));
            return Err(at(end, format!("unknown container {name:?}: {advice}")));
        }
        if ends[..number].iter().any(|other| other.get_ref() == name) {
            let what = format!("container {name:?} is at both ends; give it two links instead");
            return Err(at(end, what));
        }
        if name == HOST && !kind.has_interfaces() {
            let what = format!("a {kind} link cannot end at the host");
            return Err(at(end, what));
        }
    }
    match (ends.len(), kind.joins_many()) {
        (0 | 1, _) => Err(at(&link.ends, format!("ends: {} given; a link has two", ends.len()))),
        (2, _) => Ok(()),
        (count, true) if count > ENDS_MAX => {
            Err(at(&link.ends, format!("ends: {count} given; a link has {ENDS_MAX} at most")))
        }
        (_, true) => Ok(()),
        (count, false) => {
            let many = LinkKind::ALL.into_iter().filter(|kind| kind.joins_many());
            let many: Vec<_> = many.map(|kind| kind.name).collect();
            let what = format!(
                "ends: {count} given; a {kind} link has two; for more ends use {}",
                many.join(", ")
            );
            Err(at(&link.ends, what))
        }
    }
}

fn check_network(link: &file::Link, kind: LinkKind) -> Result<Option<Network>, Wrong> {
    let Some(network) = &link.network else {
        return match &link.addresses {
            Some(addresses) => {
                Err(at(addresses, "addresses without network: give the network that they are in"))
            }
            None => Ok(None),
        };
    };
    if !kind.has_interfaces() {
        let what = format!("network: a {kind} link has no interfaces, and so no addresses");
        return Err(at(network, what));
    }
    if kind.is_routed() {
        let what =
            format!("network: routes of a {kind} link lead to addresses of its own; leave it out");
        return Err(at(network, what));
    }
    network
        .get_ref()
        .parse()
        .map(Some)
        .map_err(|error: NetworkError| at(network, format!("network = {error}")))
}

/// Returns an address for each end: the given ones, or the network's in order.
fn check_addresses(link: &file::Link, network: Network) -> Result<Vec<Ipv4Addr>, Wrong> {
    let count = link.ends.get_ref().len();
    let Some(addresses) = &link.addresses else {
        let hosts: Vec<_> = network.hosts().take(count).collect();
        if hosts.len() < count {
            let what = format!("network {network}: {} addresses for {count} ends", hosts.len());
            return Err(at(&link.ends, what));
        }
        return Ok(hosts);
    };
    if addresses.get_ref().len() != count {
        let given = addresses.get_ref().len();
        let what = format!("addresses: {given} given for {count} ends; give one for each");
        return Err(at(addresses, what));
    }
    let mut checked: Vec<Ipv4Addr> = Vec::new();
    for address in addresses.get_ref() {
        let text = address.get_ref();
        let wrong = |what: String| at(address, format!("address {text:?}: {what}"));
        let parsed = text.parse().map_err(|_| wrong("give one such as 10.0.0.1".to_owned()))?;
        if !network.has_host(parsed) {
            let (first, last) = (network.hosts().next(), network.last_host());
            let first = first.expect("a network has hosts");
            return Err(wrong(format!("outside the network {network}; give {first} to {last}")));
        }
        if checked.contains(&parsed) {
            return Err(wrong("used by two ends; give each its own".to_owned()));
        }
        checked.push(parsed);
    }
    Ok(checked)
}

fn check_commands(
    file: &File,
    topology: &Topology,
    check_command: &dyn Fn(&[String]) -> Result<(), String>,
) -> Result<(), Wrong> {
    let mut edges = Vec::new();
    for container in file.containers.iter().map(Spanned::get_ref) {
        let Some(run) = &container.run else { continue };
        let name = container.name.get_ref();
        if run.get_ref().trim().is_empty() {
            return Err(at(
                run,
                format!("container {name:?}: run: give a command, or leave it out"),
            ));
        }
        let Some(words) = forwarders::dray_words(topology, name, run.get_ref()) else { continue };
        check_command(&words)
            .map_err(|what| at(run, format!("container {name:?}: run: {what}")))?;
        edges.extend(forwarders::edges(topology, name, &words));
    }
    let Some(cycle) = forwarders::find_cycle(&edges) else { return Ok(()) };
    let first =
        file.containers.iter().find(|container| *container.get_ref().name.get_ref() == cycle[0]);
    let what = format!(
        "forwarders in a cycle: {} and back to {}; frames would loop forever: leave out a link, or \
         make one forward in one direction only",
        cycle.join(", "),
        cycle[0]
    );
    let run = first.and_then(|container| container.get_ref().run.as_ref());
    Err(Wrong { at: run.map(|run| run.span().start), what })
}

//! Draws a topology: containers and the links between them in columns, by distance from the first
//! container.

use std::collections::VecDeque;
use std::sync::LazyLock;

use dray_text::escape_html;
use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

use super::plan::{HOST, LinkPlan, Topology};

/// Font size, line height and width of a character, in pixels.
const FONT: usize = 12;
const LINE: usize = 17;
const CHARACTER: f64 = 7.25;
/// Space inside boxes, between columns, between boxes of a column, and around the picture.
const PADDING: usize = 10;
const COLUMN_GAP: usize = 44;
/// Space between columns with rates on the lines.
const LIVE_COLUMN_GAP: usize = 96;
const ROW_GAP: usize = 18;
const MARGIN: usize = 20;

const PICTURE: &str = "picture.svg";

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_formatter(|out, _, value| Ok(out.write_str(&escape_html(&value.to_string()))?));
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.add_template(PICTURE, include_str!("picture.svg")).expect("valid template");
    environment
});

/// A box, or a label on a wire.
struct Node {
    class: &'static str,
    /// Lines of text; the first is the name.
    lines: Vec<String>,
    neighbours: Vec<usize>,
    column: usize,
    x: usize,
    y: usize,
}

impl Node {
    fn new(class: &'static str, lines: Vec<String>) -> Self {
        Self { class, lines, neighbours: Vec::new(), column: 0, x: 0, y: 0 }
    }

    fn width(&self) -> usize {
        let characters = self.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        (characters as f64 * CHARACTER).ceil() as usize + 2 * PADDING
    }

    fn height(&self) -> usize {
        self.lines.len() * LINE + 2 * PADDING - (LINE - FONT)
    }
}

/// Returns the name of a container's port by its number.
type PortName<'a> = &'a dyn Fn(&str, usize) -> String;

/// Draws a topology as SVG, for a browser or a document.
pub fn draw(topology: &Topology) -> String {
    render(topology, COLUMN_GAP, None)
}

/// Draws a topology as SVG for a page that has its own style, and that shows rates on the lines: a
/// line is in a group of class `edge`, whose `data-end` is what `end` returns for the container and
/// the number of its port, and whose `data-side` says on which side the container is. Its texts of
/// the classes `right`, `left` and `lost` are empty.
pub fn draw_live(topology: &Topology, end: &dyn Fn(&str, usize) -> String) -> String {
    render(topology, LIVE_COLUMN_GAP, Some(end))
}

/// A line between a container and a link.
#[derive(Serialize)]
struct Edge {
    /// Name of the container's port; `None` if the picture shows no rates.
    end: Option<String>,
    /// Side of the link that the container is on.
    side: &'static str,
    from: (usize, usize),
    to: (usize, usize),
    /// Position of the rates: near the link, since the lines of a container may meet at its side.
    rates: (usize, usize),
}

impl Edge {
    fn new(end: Option<String>, container: &Node, link: &Node) -> Self {
        let (side, left, right) = match container.column < link.column {
            true => ("left", container, link),
            false => ("right", link, container),
        };
        let from = (left.x + left.width(), left.y + left.height() / 2);
        let to = (right.x, right.y + right.height() / 2);
        let (far, near) = if side == "left" { (from, to) } else { (to, from) };
        let rates = ((far.0 + 2 * near.0) / 3, (far.1 + 2 * near.1) / 3);
        Self { end, side, from, to, rates }
    }
}

fn render(topology: &Topology, column_gap: usize, end: Option<PortName<'_>>) -> String {
    let mut nodes = nodes(topology);
    let (width, height) = place(&mut nodes, column_gap);
    let title = topology.name.chars().count() * 10 + 2 * MARGIN;
    let links = &nodes[nodes.len() - topology.links.len()..];
    let edges = topology.links.iter().zip(links).flat_map(|(link, node)| {
        let ends = link.ends.iter().zip(&node.neighbours);
        ends.map(|(plan, &container)| {
            let end = end.map(|end| end(&plan.container, plan.port));
            Edge::new(end, &nodes[container], node)
        })
    });
    let boxes = nodes.iter().map(|node| {
        let Node { class, x, y, lines, .. } = node;
        context! { class, x, y, lines, width => node.width(), height => node.height() }
    });
    let data = context! {
        name => topology.name,
        is_live => end.is_some(),
        width => width.max(title),
        height,
        edges => edges.collect::<Vec<_>>(),
        boxes => boxes.collect::<Vec<_>>(),
        padding => PADDING,
        first_line => PADDING + FONT - 2,
        line_height => LINE,
    };
    let picture = TEMPLATES.get_template(PICTURE).expect("its only template");
    picture.render(data).expect("data has every variable of the template")
}

/// Returns the containers, with the host if a link ends there, followed by the links.
fn nodes(topology: &Topology) -> Vec<Node> {
    let names = topology.containers.iter().map(|container| container.name.as_str());
    let names: Vec<_> = names.chain(topology.has_host().then_some(HOST)).collect();
    let container = |name: &&str| {
        let class = if *name == HOST { "host" } else { "container" };
        let ports = topology.ports(name).map(|(link, end)| match link.address(end) {
            Some(address) => format!("{} {address}", end.name),
            None => end.name.clone(),
        });
        Node::new(class, [(*name).to_owned()].into_iter().chain(ports).collect())
    };
    let mut nodes: Vec<_> = names.iter().map(container).collect();
    for link in &topology.links {
        let number = nodes.len();
        let mut node = link_node(link);
        for end in &link.ends {
            let at = names.iter().position(|name| *name == end.container);
            let at = at.expect("ends are known containers");
            node.neighbours.push(at);
            nodes[at].neighbours.push(number);
        }
        nodes.push(node);
    }
    nodes
}

fn link_node(link: &LinkPlan) -> Node {
    let mut lines = vec![link.kind.to_string()];
    let class = if link.kind.is_direct() {
        "wire"
    } else {
        let place = match link.kind.switch() {
            Some(_) => "in user space",
            None if link.kind.is_between_hosts() => "on two hosts",
            None => "on the host",
        };
        lines.push(place.to_owned());
        lines.extend(link.network.map(|network| network.to_string()));
        "between"
    };
    if link.mtu != 1500 {
        lines.push(format!("MTU {}", link.mtu));
    }
    Node::new(class, lines)
}

/// Places every node and returns the size of the picture.
fn place(nodes: &mut [Node], column_gap: usize) -> (usize, usize) {
    let groups = groups(nodes);
    let columns = nodes.iter().map(|node| node.column + 1).max().unwrap_or(0);
    let mut x = MARGIN;
    let mut left = Vec::new();
    for column in 0..columns {
        let width = nodes.iter().filter(|node| node.column == column).map(Node::width).max();
        left.push((x, width.unwrap_or(0)));
        x += width.unwrap_or(0) + column_gap;
    }
    let mut top = 2 * MARGIN + LINE;
    for group in groups {
        let in_column = |nodes: &[Node], number| -> Vec<usize> {
            group.iter().copied().filter(|&node| nodes[node].column == number).collect()
        };
        let height = |nodes: &[Node], members: &[usize]| {
            let boxes: usize = members.iter().map(|&node| nodes[node].height()).sum();
            boxes + members.len().saturating_sub(1) * ROW_GAP
        };
        let heights = (0..columns).map(|number| height(nodes, &in_column(nodes, number)));
        let tallest = heights.max().unwrap_or(0);
        for (number, &(x, width)) in left.iter().enumerate() {
            let members = in_column(nodes, number);
            let mut y = top + (tallest - height(nodes, &members)) / 2;
            for node in members {
                nodes[node].x = x + (width - nodes[node].width()) / 2;
                nodes[node].y = y;
                y += nodes[node].height() + ROW_GAP;
            }
        }
        top += tallest + 2 * ROW_GAP;
    }
    (x - column_gap + MARGIN, top - 2 * ROW_GAP + MARGIN)
}

/// Assigns columns to all nodes, breadth first, and returns the connected groups, each in the order
/// in which its nodes were found. Containers and links alternate, so every line is between two
/// columns.
fn groups(nodes: &mut [Node]) -> Vec<Vec<usize>> {
    let mut found = vec![false; nodes.len()];
    let mut groups = Vec::new();
    for start in 0..nodes.len() {
        if found[start] {
            continue;
        }
        found[start] = true;
        let (mut group, mut queue) = (Vec::new(), VecDeque::from([start]));
        while let Some(node) = queue.pop_front() {
            group.push(node);
            for other in nodes[node].neighbours.clone() {
                if !found[other] {
                    found[other] = true;
                    nodes[other].column = nodes[node].column + 1;
                    queue.push_back(other);
                }
            }
        }
        groups.push(group);
    }
    groups
}

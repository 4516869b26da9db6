//! Draws a topology: containers and the links between them in columns, by distance from the first
//! container.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::{HOST, LinkPlan, Topology};

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

const STYLE: &str = "\
text { font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 12px; fill: #222; }
.name { font-weight: bold; }
.title { font-size: 15px; font-weight: bold; }
.container { fill: #e8f1fb; stroke: #3a6ea5; }
.host { fill: #f0f0f0; stroke: #666; }
.between { fill: #fff7e0; stroke: #b8860b; stroke-dasharray: 5 3; }
.wire { fill: #fff; stroke: none; }
line { stroke: #555; stroke-width: 1.5; }
";

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

/// Draws a topology as SVG, for a browser or a document.
pub fn draw(topology: &Topology) -> String {
    let line = |edge: &Edge<'_>| edge.line();
    draw_with(topology, COLUMN_GAP, STYLE, &line)
}

/// Draws a topology as SVG for a page that has its own style, and that shows rates on the lines: a
/// line is in a group of class `edge`, whose `data-end` is what `end` returns for the container and
/// the number of its port, and whose `data-side` says on which side the container is. Its texts of
/// the classes `right`, `left` and `lost` are empty.
pub fn draw_live(topology: &Topology, end: &dyn Fn(&str, usize) -> String) -> String {
    let line = |edge: &Edge<'_>| {
        // Near the link: the lines of a container may meet at its side.
        let (container, link) = match edge.side {
            "left" => (edge.from, edge.to),
            _ => (edge.to, edge.from),
        };
        let (x, y) = ((container.0 + 2 * link.0) / 3, (container.1 + 2 * link.1) / 3);
        let text =
            |class: &str, y: usize| format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\"></text>");
        let texts = text("right", y - 6) + &text("left", y + 15) + &text("lost", y + 30);
        let (end, side) = (escape(&end(edge.container, edge.port)), edge.side);
        let line = edge.line();
        format!("<g class=\"edge\" data-end=\"{end}\" data-side=\"{side}\">{line}{texts}</g>")
    };
    draw_with(topology, LIVE_COLUMN_GAP, "", &line)
}

/// A line between a container and a link.
struct Edge<'t> {
    container: &'t str,
    /// Number of the container's port.
    port: usize,
    /// Side of the link that the container is on.
    side: &'static str,
    from: (usize, usize),
    to: (usize, usize),
}

impl Edge<'_> {
    fn line(&self) -> String {
        let Self { from: (x1, y1), to: (x2, y2), .. } = self;
        format!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>")
    }
}

fn draw_with(
    topology: &Topology,
    column_gap: usize,
    style: &str,
    line: &dyn Fn(&Edge<'_>) -> String,
) -> String {
    let mut nodes = nodes(topology);
    let containers = nodes.len() - topology.links.len();
    let (width, height) = place(&mut nodes, column_gap);
    let title = topology.name.chars().count() * 10 + 2 * MARGIN;
    let mut svg = String::new();
    let mut add = |text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text).expect("a string takes everything");
        svg.push('\n');
    };
    let width = width.max(title);
    add(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">"
    ));
    if style.is_empty() {
        add(format_args!("<rect class=\"back\" width=\"{width}\" height=\"{height}\"/>"));
    } else {
        add(format_args!("<style>\n{style}</style>"));
        add(format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>"));
    }
    let (x, y) = (MARGIN, MARGIN + FONT);
    add(format_args!(
        "<text class=\"title\" x=\"{x}\" y=\"{y}\">{}</text>",
        escape(&topology.name)
    ));
    for (link, node) in topology.links.iter().zip(&nodes[containers..]) {
        for (end, &other) in link.ends.iter().zip(&node.neighbours) {
            let container = &nodes[other];
            let (side, left, right) = match container.column < node.column {
                true => ("left", container, node),
                false => ("right", node, container),
            };
            let edge = Edge {
                container: &end.container,
                port: end.port,
                side,
                from: (left.x + left.width(), left.y + left.height() / 2),
                to: (right.x, right.y + right.height() / 2),
            };
            add(format_args!("{}", line(&edge)));
        }
    }
    for node in &nodes {
        let (class, x, y) = (node.class, node.x, node.y);
        let (width, height) = (node.width(), node.height());
        add(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             rx=\"4\"/>"
        ));
        for (number, line) in node.lines.iter().enumerate() {
            let (x, y) = (x + PADDING, y + PADDING + FONT - 2 + number * LINE);
            let class = if number == 0 { " class=\"name\"" } else { "" };
            add(format_args!("<text{class} x=\"{x}\" y=\"{y}\">{}</text>", escape(line)));
        }
    }
    add(format_args!("</svg>"));
    svg
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
            None if link.kind == crate::LinkKind::VXLAN => "on two hosts",
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

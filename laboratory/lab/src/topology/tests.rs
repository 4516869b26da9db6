//! Topology files: valid ones are read, invalid ones are rejected with the line.

use super::command::words;
use super::*;
use crate::link::Functions;

fn read(text: &str) -> Result<Topology, TopologyError> {
    Topology::read("some/file.toml", text, &[0, 1], &|words| match words.get(1).map(String::as_str)
    {
        Some("send" | "receive" | "forward") => Ok(()),
        other => Err(format!("unrecognized subcommand {other:?}")),
    })
}

const TWO: &str = "\
[[containers]]
name = \"a\"
[[containers]]
name = \"b\"
";

#[test]
fn parses_file_with_every_key() {
    let text = format!(
        "name = 'all'\n{TWO}cpus = [1]\nrun = 'dray receive --port \"$PORT1\"'\n\
         [[containers]]\nname = 'c'\n\
         [[links]]\nkind = 'switch/learning'\nends = ['a', 'b']\ncpu = 0\n\
         [[links]]\nkind = 'bridge'\nends = ['a', 'b', 'c', 'host']\nmtu = 9000\n\
         network = '10.1.0.0/24'\naddresses = ['10.1.0.9', '10.1.0.1', '10.1.0.2', '10.1.0.254']\n\
         [[links]]\nkind = 'veth'\nends = ['c', 'b']\nnetwork = '10.2.0.0/30'\n"
    );
    let topology = read(&text).unwrap();
    assert_eq!(topology.name, "all");
    assert_eq!(topology.containers[1].cpus, [1]);
    let ports = |name: &str| -> Vec<(usize, String, Option<String>)> {
        let ports = topology.ports(name);
        ports.map(|(link, end)| (end.port, end.name.clone(), link.address(end))).collect()
    };
    let address = |text: &str| Some(text.to_owned());
    assert_eq!(
        ports("b"),
        [
            (0, "socket0".to_owned(), None),
            (1, "eth0".to_owned(), address("10.1.0.1/24")),
            (2, "eth1".to_owned(), address("10.2.0.2/30")),
        ]
    );
    assert_eq!(ports(HOST), [(0, "eth0".to_owned(), address("10.1.0.254/24"))]);
    assert_eq!(
        (topology.links[0].cpu, topology.links[1].mtu, topology.links[2].mtu),
        (Some(0), 9000, 1500)
    );
    assert_eq!(read(TWO).unwrap().name, "file", "without a name it is the file's");
}

#[test]
fn virtual_functions_follow_file_or_defaults() {
    let card = format!("{TWO}[[links]]\nkind = 'sriov'\nends = ['a', 'b']\nparent = 'eth7'\n");
    let functions = |rest: &str| read(&format!("{card}{rest}")).unwrap().links[0].functions.clone();
    let usual = Functions::default();
    assert_eq!(functions(""), usual);
    assert_eq!(functions("functions = { vlan = 0 }"), Functions { vlan: Some(0), ..usual });
    let macs = [1, 2].map(dray_wire::MacAddr::local);
    let text = "functions = { macs = ['02:00:00:00:00:01', '02:00:00:00:00:02'], vlan = 7, \
                spoof_check = false, trust = true }";
    let (spoof_check, trust) = (Some(false), Some(true));
    let all = Functions { macs: macs.into(), vlan: Some(7), spoof_check, trust };
    assert_eq!(functions(text), all);
}

/// Cases: the text after the two containers, the line of the error, and parts of its message.
#[test]
fn errors_name_line_and_allowed_values() {
    let link = |rest: &str| format!("[[links]]\nkind = 'bridge'\nends = ['a', 'b']\n{rest}\n");
    let functions = |what: &str| {
        let card = "[[links]]\nkind = 'sriov'\nends = ['a', 'b']\nparent = 'eth7'";
        format!("{card}\nfunctions = {{ {what} }}\n")
    };
    let cases: &[(String, usize, &[&str])] = &[
        ("[[containers]]\nname = 'a'\n".into(), 6, &["\"a\"", "duplicate container name"]),
        ("[[containers]]\nname = 'a.b'\n".into(), 6, &["\"a.b\"", "A-Z a-z 0-9 _ -"]),
        ("[[containers]]\nname = 'host'\n".into(), 6, &["stands for the host"]),
        (
            "[[containers]]\nnmae = 'c'\n".into(),
            6,
            &["containers[2]: unknown key \"nmae\": did you mean name?"],
        ),
        (
            "[[containers]]\nname = 'c'\nrunn = 'x'\n".into(),
            7,
            &["containers[2]: unknown key \"runn\": did you mean run?"],
        ),
        ("[[containers]]\nname = 'c'\ncpus = [7]\n".into(), 7, &["no CPU 7", "0, 1"]),
        ("[[containers]]\nname = 'c'\nrun = ' '\n".into(), 7, &["\"c\"", "give a command"]),
        ("[[containers]]\nname = 'c'\nrun = 'dray recieve'\n".into(), 7, &["\"c\"", "recieve"]),
        (
            "[[links]]\nkind = 'tokenring'\nends = ['a', 'b']\n".into(),
            6,
            &["\"tokenring\"", "veth, "],
        ),
        ("[[links]]\nkind = 'veth'\nends = ['a', 'x']\n".into(), 7, &["\"x\"", "a, b, host"]),
        ("[[links]]\nkind = 'veth'\nends = ['a', 'a']\n".into(), 7, &["\"a\" is at both ends"]),
        ("[[links]]\nkind = 'veth'\nends = ['a']\n".into(), 7, &["1 given", "has two"]),
        ("[[links]]\nkind = 'veth'\nends = ['a', 'b', 'host']\n".into(), 7, &["3 given", "bridge"]),
        ("[[links]]\nkind = 'direct'\nends = ['a', 'host']\n".into(), 7, &["host", "direct"]),
        (link("mtu = 10"), 8, &["mtu = 10", "68 to 9000"]),
        (link("mtu = 'big'"), 8, &["mtu: \"big\": give a whole number"]),
        (link("speed = 1"), 8, &["unknown key \"speed\": ", "mtu"]),
        (link("cpu = 0"), 8, &["no switch in user space"]),
        (link("xdp_programs = true"), 6, &["only for xdp/ links"]),
        (link("network = '10.0.0.0'"), 8, &["\"10.0.0.0\"", "10.0.0.0/24"]),
        (link("network = '10.0.0.0/31'"), 8, &["8 to 30"]),
        (link("network = '10.0.0.1/24'"), 8, &["10.0.0.1/24", "the network is 10.0.0.0/24"]),
        (link("addresses = ['10.0.0.1']"), 8, &["give the network"]),
        (
            link("network = '10.0.0.0/24'\naddresses = ['10.0.0.1', '10.0.1.2']"),
            9,
            &["\"10.0.1.2\"", "outside the network 10.0.0.0/24", "10.0.0.1 to 10.0.0.254"],
        ),
        (
            link("network = '255.255.255.0/24'\naddresses = ['255.255.255.255', '255.255.255.1']"),
            9,
            &["255.255.255.1 to 255.255.255.254"],
        ),
        (
            link("network = '10.0.0.0/24'\naddresses = ['10.0.0.1', '10.0.0.1']"),
            9,
            &["used by two ends"],
        ),
        (link("network = '10.0.0.0/24'\naddresses = ['10.0.0.1']"), 9, &["1 given for 2 ends"]),
        (link("network = '10.0.0.0/24'\naddresses = ['x', 'y']"), 9, &["\"x\"", "10.0.0.1"]),
        (
            "[[links]]\nkind = 'direct'\nends = ['a', 'b']\nnetwork = '10.0.0.0/24'\n".into(),
            8,
            &["no interfaces"],
        ),
        ("[[links]]\nkind = 'switch/patch'\nends = ['a', 'b']\n".repeat(2), 9, &["second switch"]),
        ("[[links]]\nkind = 'ovs/kernel'\nends = ['a', 'b']\n".repeat(2), 9, &["second switch"]),
        ("[[links]]\nkind = 'sriov'\nends = ['a', 'b']\n".into(), 6, &["parent = \"INTERFACE\""]),
        (link("parent = 'eth7'"), 8, &["parent", "leave it out"]),
        (link("functions = { vlan = 5 }"), 8, &["functions", "leave it out"]),
        (functions("vlan = 4095"), 9, &["vlan = 4095", "0 (untagged) to 4094"]),
        (functions("trust = 'yes'"), 9, &["trust: \"yes\": give true or false"]),
        (functions("speed = 1"), 9, &["unknown key \"speed\": give one of macs"]),
        (functions("macs = ['02:00:00:00:00:01']"), 9, &["1 given for 2 ends"]),
        (functions("macs = ['02:00:00:00:00:01', '2:1']"), 9, &["\"2:1\"", "six hexadecimal"]),
        (
            functions("macs = ['02:00:00:00:00:01', '03:00:00:00:00:01']"),
            9,
            &["03:00:00:00:00:01", "not a unicast address"],
        ),
        (
            functions("macs = ['02:00:00:00:00:01', '02:00:00:00:00:01']"),
            9,
            &["02:00:00:00:00:01", "used by two ends"],
        ),
        ("[[links]\n".into(), 5, &[]),
    ];
    for (rest, line, parts) in cases {
        let error = read(&format!("{TWO}{rest}")).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.line, Some(*line), "{rest}{message}");
        assert!(message.starts_with(&format!("some/file.toml:{line}: ")), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
    assert!(read("").unwrap_err().to_string().contains("no containers"));
    let nameless = Topology::read("a b.toml", TWO, &[0], &|_| Ok(())).unwrap_err();
    assert!(nameless.to_string().contains("\"a b\""), "{nameless}");
}

/// Reads a file with a command line for each container and veth links between containers.
fn forwarders(containers: &[(&str, &str)], links: &[[&str; 2]]) -> Result<Topology, TopologyError> {
    let container = |(name, run): &(&str, &str)| {
        let run = if run.is_empty() { String::new() } else { format!("run = {run:?}\n") };
        format!("[[containers]]\nname = {name:?}\n{run}")
    };
    let link = |ends: &[&str; 2]| format!("[[links]]\nkind = 'veth'\nends = {ends:?}\n");
    let containers = containers.iter().map(container);
    read(&containers.chain(links.iter().map(link)).collect::<String>())
}

#[test]
fn forwarder_cycles_are_rejected() {
    let forward = "dray forward --from raw:eth0 --to raw:eth1";
    let both = "dray forward --from=$PORT0 --to='raw:eth1?batch=64' --both-ways";
    let ring = [["a", "b"], ["b", "c"], ["c", "a"]];
    // Interfaces in the order of links: a has ab, ca; b has ab, bc; c has bc, ca.
    for (a, b, c) in [(both, both, both), (both, forward, forward)] {
        let error = forwarders(&[("a", a), ("b", b), ("c", c)], &ring).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("forwarders in a cycle"), "{message}");
        assert!(["a", "b", "c"].iter().all(|name| message.contains(name)), "{message}");
        assert!(error.line.is_some(), "{message}");
    }
    // One forwards against the direction of the others, or one does not forward: no cycle.
    for (a, b, c) in [(forward, forward, forward), (both, both, "")] {
        forwarders(&[("a", a), ("b", b), ("c", c)], &ring).unwrap();
    }
    let twice = [["a", "b"], ["a", "b"]];
    forwarders(&[("a", both), ("b", both)], &twice).unwrap_err();
    forwarders(&[("a", both), ("b", "dray receive --port raw:eth0")], &twice).unwrap();
    let chain = [["s", "a"], ["a", "b"], ["b", "r"]];
    forwarders(&[("s", ""), ("a", both), ("b", both), ("r", "")], &chain).unwrap();
}

#[test]
fn commands_are_split_like_a_shell() {
    assert_eq!(words(" a  'b c' \"d'e\"f ''"), ["a", "b c", "d'ef", ""]);
}

/// Positions and sizes of boxes.
fn boxes(svg: &str) -> Vec<[usize; 4]> {
    let number = |line: &str, name: &str| -> usize {
        let rest = line.split_once(&format!(" {name}=\"")).unwrap().1;
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let boxes = svg.lines().filter(|line| line.starts_with("<rect class="));
    boxes.map(|line| ["x", "y", "width", "height"].map(|name| number(line, name))).collect()
}

#[test]
fn svg_boxes_fit_and_do_not_overlap() {
    let names: Vec<_> = (0..5).map(|n| format!("c{n}")).collect();
    let containers: String =
        names.iter().map(|n| format!("[[containers]]\nname = '{n}'\n")).collect();
    let many = format!(
        "{containers}[[links]]\nkind = 'bridge'\nends = {names:?}\n\
                        [[links]]\nkind = 'veth'\nends = ['c0', 'c1']\nnetwork = '10.0.0.0/24'\n"
    );
    let alone = format!("name = 'a-name-longer-than-its-picture'\n{TWO}");
    for text in [many, alone] {
        let topology = read(&text).unwrap();
        let svg = draw(&topology);
        let boxes = boxes(&svg);
        assert_eq!(boxes.len(), topology.containers.len() + topology.links.len());
        let size = |name: &str| -> usize {
            let rest = svg.split_once(&format!(" {name}=\"")).unwrap().1;
            rest.split('"').next().unwrap().parse().unwrap()
        };
        for (number, [x, y, width, height]) in boxes.iter().enumerate() {
            assert!(x + width < size("width") && y + height < size("height"), "{svg}");
            for [other_x, other_y, other_width, other_height] in &boxes[..number] {
                let beside = x + width < *other_x || other_x + other_width < *x;
                let below = y + height < *other_y || other_y + other_height < *y;
                assert!(beside || below, "{svg}");
            }
        }
        let lines = svg.lines().filter(|line| line.starts_with("<line")).count();
        assert_eq!(lines, topology.links.iter().map(|link| link.ends.len()).sum::<usize>());
        assert!(topology.containers.iter().all(|container| svg.contains(&container.name)));
    }
}

#[test]
fn configuration_of_other_command_is_named() {
    let error = |text: &str| read(text).unwrap_err().to_string();
    let upf = error(include_str!("../../../../examples/upf.toml"));
    assert!(
        upf.ends_with(
            ": this configures a user plane function: use `dray upf --n3 URI --n6 URI --config FILE`"
        ),
        "{upf}"
    );
    let switch = error("mode = 'patch'\n[[ports]]\nname = 'a'\nuri = 'null:'\n");
    assert!(
        switch.contains("this configures a switch: use `dray switch --config FILE`"),
        "{switch}"
    );
}

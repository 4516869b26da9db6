//! Labs as text.

use dray_lab::standing::{CommandEnd, ContainerState, LabState, PortState};
use dray_text::table;

const TITLES: [&str; 7] = ["container", "state", "cpus", "port", "link", "address", "mac"];

pub(super) fn labs(labs: &[LabState]) -> String {
    if labs.is_empty() {
        return "no lab is up\n".to_owned();
    }
    let texts: Vec<_> = labs.iter().map(lab).collect();
    texts.join("\n")
}

fn lab(lab: &LabState) -> String {
    let mut text = format!("lab {}: {}, keeper {}\n", lab.name, lab.file, lab.keeper);
    text += &table(&TITLES, lab.containers.iter().flat_map(rows), TITLES.len());
    for container in &lab.containers {
        if let Some(program) = &container.program {
            let state = program.ended.as_deref().unwrap_or("running");
            let (name, run) = (&container.name, &program.run);
            text += &format!(
                "{name}: {run}\n  {state}; output: dray lab logs --lab {} {name}\n",
                lab.name
            );
        }
    }
    text
}

/// Describes how the commands of a lab ended as it went down.
pub(super) fn ends(lab: &str, ends: &[CommandEnd]) -> String {
    let mut text = String::new();
    for end in ends {
        let CommandEnd { container, run, ended, summary, .. } = end;
        text += &format!("{container}: {run} ({ended})\n");
        summary.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    // A killed command may have left files outside of the lab's directory.
    let is_clean = ends.iter().all(|end| !end.killed);
    text + &format!("lab {lab} is down{}\n", if is_clean { "; nothing of it is left" } else { "" })
}

/// Returns a row for each port, or one for a container without ports.
fn rows(container: &ContainerState) -> Vec<Vec<String>> {
    let state = if container.running { "running" } else { "ended" };
    let first = [container.name.clone(), state.to_owned(), container.cpus.clone()];
    let of = |port: &PortState| {
        let down = if port.running == Some(false) { " (down)" } else { "" };
        [
            format!("{}{down}", port.name),
            format!("{} {}", port.link, port.kind),
            port.address.clone().unwrap_or_else(|| "-".to_owned()),
            port.mac.clone(),
        ]
    };
    let mut rows = vec![first.to_vec()];
    for (number, port) in container.ports.iter().enumerate() {
        if number > 0 {
            rows.push(vec![String::new(); first.len()]);
        }
        rows[number].extend(of(port));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_command_is_not_called_clean() {
        let mut end = CommandEnd {
            container: "a".to_owned(),
            run: "x -y".to_owned(),
            ended: "exit status 0".to_owned(),
            killed: false,
            summary: vec!["up 1".to_owned(), "down 2".to_owned()],
        };
        let text = ends("one", std::slice::from_ref(&end));
        assert_eq!(
            text,
            "a: x -y (exit status 0)\n  up 1\n  down 2\nlab one is down; nothing of it is left\n"
        );
        end.killed = true;
        assert!(ends("one", &[end]).ends_with("\nlab one is down\n"));
    }

    #[test]
    fn lab_is_rendered_as_table() {
        let port = |name: &str, address: Option<&str>, running| PortState {
            name: name.to_owned(),
            uri: String::new(),
            kind: "veth".to_owned(),
            link: 1,
            mac: "02:00:00:00:00:01".to_owned(),
            address: address.map(str::to_owned),
            running,
            traffic: None,
            environment: Default::default(),
        };
        let container = |name: &str, ports| ContainerState {
            name: name.to_owned(),
            pid: 7,
            running: true,
            cpus: "0-1".to_owned(),
            control: Default::default(),
            ports,
            program: None,
        };
        let ports =
            vec![port("eth0", Some("10.0.0.1/24"), Some(true)), port("eth1", None, Some(false))];
        let state = LabState {
            name: "two".to_owned(),
            file: "two.toml".to_owned(),
            text: String::new(),
            keeper: 42,
            containers: vec![container("host", Vec::new()), container("a", ports)],
        };
        let expected = "\
lab two: two.toml, keeper 42
container  state    cpus  port         link    address      mac
──────────────────────────────────────────────────────────────────────────────
host       running  0-1
a          running  0-1   eth0         1 veth  10.0.0.1/24  02:00:00:00:00:01
                          eth1 (down)  1 veth  -            02:00:00:00:00:01
";
        let without_rule = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('─')).map(str::to_owned).collect()
        };
        assert_eq!(without_rule(&labs(&[state])), without_rule(expected));
        assert_eq!(labs(&[]), "no lab is up\n");
    }
}

//! The tables in the documentation agree with the code.

use dray_switch::DropReason;

#[test]
fn documented_drop_reasons_are_those_of_the_code() {
    let page = include_str!("../../../docs/switch.md");
    let (_, table) = page.split_once("| reason | counted at | cause |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let documented: Vec<_> = rows
        .map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(str::trim);
            let mut next = || cells.next().unwrap_or_default();
            (next().trim_matches('`').to_owned(), next())
        })
        .collect();
    let coded = DropReason::ALL.iter().map(|reason| {
        let side = match reason.meaning().split_once(": ") {
            Some(("rx", _)) => "ingress",
            Some(("tx", _)) => "egress",
            _ => panic!("{}: begin its meaning with rx: or tx:", reason.name()),
        };
        (reason.name().to_owned(), side)
    });
    assert_eq!(documented, coded.collect::<Vec<_>>());
}

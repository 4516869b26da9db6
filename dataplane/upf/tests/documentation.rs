//! The tables in the documentation agree with the code.

use dray_upf::DropReason;

#[test]
fn documented_drop_reasons_are_those_of_the_code() {
    let page = include_str!("../../../docs/upf.md");
    let (_, table) = page.split_once("| reason | what was dropped | what to look at |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    for row in &rows {
        assert!(row.len() == 3 && !row[2].is_empty(), "{row:?}");
    }
    let documented: Vec<_> =
        rows.iter().map(|row| (row[0].trim_matches('`').to_owned(), row[1])).collect();
    let reasons = DropReason::ALL.iter();
    let coded: Vec<_> =
        reasons.map(|reason| (reason.name().to_owned(), reason.meaning())).collect();
    assert_eq!(documented, coded);
}

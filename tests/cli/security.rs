//! The table of promises and their tests in SECURITY.md.

use std::fs;
use std::path::Path;

use crate::pages::TOP;

/// Returns the words of a line that are in backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the attributes at the end of the text before a function, without its comments.
fn attributes(before: &str) -> String {
    let lines = before.lines().rev().skip_while(|line| line.trim().is_empty());
    let is_own = |line: &&str| line.trim().starts_with(['#', '/']) || line.trim().ends_with(']');
    lines.take_while(is_own).filter(|line| !line.trim().starts_with("//")).collect()
}

#[test]
fn ignore_attribute_is_found_only_as_attribute() {
    let code = "    }\n}\n\n/// Does not ignore it.\n#[test]\n#[ignore = \"slow\"]\n";
    assert_eq!(attributes(code), "#[ignore = \"slow\"]#[test]");
    assert_eq!(attributes("#[ignore]\nfn other() {}\n\n/// One #[ignore].\n#[test]\n"), "#[test]");
}

#[test]
fn each_promise_has_tests_that_exist() {
    let page = fs::read_to_string(format!("{TOP}/SECURITY.md")).unwrap();
    let rows = page.lines().skip_while(|line| *line != "| promise | tests |").skip(2);
    let mut promises = 0;
    for row in rows.take_while(|line| line.starts_with('|')) {
        let tests = row.split(" | ").nth(1).expect("two columns");
        let (mut file, mut text, mut found) = ("", String::new(), 0);
        for word in quoted(tests) {
            if Path::new(word).extension().is_some() {
                let read = fs::read_to_string(format!("{TOP}/{word}"));
                (file, text) = (word, read.unwrap_or_else(|error| panic!("{word}: {error}")));
                found += usize::from(word.starts_with("fuzz/"));
            } else {
                let name = format!("fn {word}(");
                let (before, _) =
                    text.split_once(&name).unwrap_or_else(|| panic!("{file}: {word}"));
                let attributes = attributes(before);
                assert!(attributes.contains("#[test]"), "{file}: {word} is not a test");
                // Neither `#[ignore]` nor `#[ignore = "why"]`, also not for some targets alone.
                assert!(!attributes.contains("ignore"), "{file}: {word} does not run by default");
                found += 1;
            }
        }
        assert!(found > 0, "no test: {row}");
        promises += 1;
    }
    assert!(promises > 15, "{promises} promises");
}

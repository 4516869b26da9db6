//! The table of promises and their tests in SECURITY.md.

use std::fs;
use std::path::Path;

use crate::pages::TOP;

/// Returns the words of a line that are in backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
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
                let attributes = before.rsplit('}').next().unwrap_or_default();
                assert!(attributes.contains("#[test]"), "{file}: {word} is not a test");
                found += 1;
            }
        }
        assert!(found > 0, "no test: {row}");
        promises += 1;
    }
    assert!(promises > 15, "{promises} promises");
}

//! Command lines of containers that call `dray`.

/// Returns the words of a command line that calls `dray`; `None` if it calls another program or
/// uses shell syntax other than quotes and variables.
pub(crate) fn dray_call(line: &str) -> Option<Vec<String>> {
    const MARKS: [&str; 7] = ["|", ";", "<", ">", "`", "$(", "&&"];
    let words = words(line);
    let is_call = words.first()? == "dray" && !MARKS.iter().any(|mark| line.contains(mark));
    is_call.then_some(words)
}

/// Splits a command line into words, handling quotes as a shell does.
pub(super) fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

//! Escapes text from result files for its output format. The author of a file may be hostile.

use dray_text::escape_html;

/// Escapes text for a cell of a Markdown table, which may contain HTML.
pub fn markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in escape_html(text).chars() {
        match character {
            '\n' | '\r' => safe.push(' '),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' => safe.extend(['\\', character]),
            _ => safe.push(character),
        }
    }
    safe
}

/// Escapes text for a field of a CSV file (RFC 4180). An apostrophe before text that begins like a
/// formula keeps spreadsheets from evaluating it.
pub(crate) fn csv(text: &str) -> String {
    let formula =
        text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_and_csv_are_escaped() {
        assert_eq!(markdown("<b>\"1\"</b>&'"), "&lt;b&gt;&quot;1&quot;&lt;/b&gt;&amp;&#39;");
        assert_eq!(markdown("a|b\n`c` <i> [x](y)"), "a\\|b \\`c\\` &lt;i&gt; \\[x\\](y)");
        assert_eq!(csv("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv("=HYPERLINK(1)"), "'=HYPERLINK(1)");
        assert_eq!((csv("-5.5"), csv("veth/udp")), ("-5.5".into(), "veth/udp".into()));
    }
}

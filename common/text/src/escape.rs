//! Escapes text for markup.

/// Escapes text for HTML and SVG, in text and in quoted attributes.
pub fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::escape_html;

    #[test]
    fn markup_is_escaped_and_slashes_stay() {
        assert_eq!(escape_html("<b a='1'>&\"/"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;/");
    }
}

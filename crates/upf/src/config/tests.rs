use super::*;

#[test]
fn errors_name_line_and_field() {
    for (text, parts) in [
        ("n3 = 1", ["line 1", "n3"]),
        ("n3 = { mac = \"x\", addresses = [] }", ["line 1", "n3.mac"]),
        ("[[sessions]]\nseid = -1", ["line 2", "seid"]),
        ("[[sessions]]\nseid = 1\nue = [\"10.0.0.300\"]", ["line 3", "10.0.0.300"]),
        ("colour = \"red\"", ["line 1", "colour"]),
        ("n3 = {", ["line 1", "unclosed"]),
    ] {
        let error = UpfConfig::from_toml(text).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

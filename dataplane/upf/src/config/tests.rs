use super::*;

#[test]
fn config_file_is_toml_or_json() {
    let toml = "sessions_max = 8\nn3 = { mac = \"02:00:00:00:03:01\", addresses = [\"10.0.3.1\"] }\n\
                n6 = { mac = \"02:00:00:00:06:01\", addresses = [\"10.0.6.1\"] }\n\
                generate = { count = 2, gnbs = [\"10.0.3.2\"], ue = \"10.45.0.1\" }\n";
    let json = r#"{ "sessions_max": 8, "n3": { "mac": "02:00:00:00:03:01", "addresses": ["10.0.3.1"] },
        "n6": { "mac": "02:00:00:00:06:01", "addresses": ["10.0.6.1"] },
        "generate": { "count": 2, "gnbs": ["10.0.3.2"], "ue": "10.45.0.1" } }"#;
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        UpfConfig::load(&path)
    };
    let loaded = |name, text| format!("{:?}", load(name, text).unwrap());
    assert_eq!(loaded("upf.toml", toml), loaded("upf.json", json));
    let error = load("wrong.json", &json.replace("\"count\": 2", "\"count\": -2")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("wrong.json") && error.contains("generate.count"), "{error}");
}

#[test]
fn config_errors_name_line_and_field() {
    for (text, parts) in [
        ("n3 = 1", ["line 1", "n3"]),
        ("n3 = { mac = \"x\", addresses = [] }", ["line 1", "n3.mac"]),
        ("[[sessions]]\nseid = -1", ["line 2", "seid"]),
        (
            "[[sessions]]\nseid = 8\nue = [\"10.0.0.300\"]",
            ["line 3: session 8: ue[0]: ", "10.0.0.300"],
        ),
        ("colour = \"red\"", ["line 1", "colour"]),
        ("n3 = {", ["line 1", "unclosed"]),
    ] {
        let error = UpfConfig::from_toml(text).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

//! The JSON schema of result files, `docs/result.schema.json`, derived from the types here.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::Results;

/// Types whose keys are inlined into a row's object.
const INLINED: [&str; 2] = ["Measured", "MeasuredStreams"];

fn schema() -> Map<String, Value> {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut root = generator.into_root_schema_for::<Results>().to_value();
    tidy(&mut root);
    let Value::Object(mut root) = root else { panic!("{root}") };
    for (name, schema) in root["$defs"].as_object_mut().unwrap() {
        if !INLINED.contains(&name.as_str()) {
            close(schema.as_object_mut().unwrap());
        }
    }
    close(&mut root);
    root
}

/// Allows no other properties in an object.
fn close(schema: &mut Map<String, Value>) {
    if schema.contains_key("properties") {
        let has_inlined = schema.contains_key("anyOf");
        let other = if has_inlined { "unevaluatedProperties" } else { "additionalProperties" };
        schema.insert(other.to_owned(), false.into());
    }
}

/// Removes what only Rust knows, and adds what the types do not say.
fn tidy(schema: &mut Value) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
        assert!(!text.contains("[`"), "links of rustdoc mean nothing in a schema: {text}");
    }
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        tidy_properties(properties, &required);
        // Results of older versions lack properties that have a default.
        let is_required =
            |name: &Value| properties[name.as_str().unwrap()].get("default").is_none();
        schema["required"] = required.into_iter().filter(is_required).collect();
    }
    match schema {
        Value::Object(parts) => {
            // A width in bits, such as `uint32`.
            parts.remove("format");
            parts.values_mut().for_each(tidy);
        }
        Value::Array(parts) => parts.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Adds what the names of `properties` say, and which of them are null. A property that is not
/// `required` is never null, but absent.
fn tidy_properties(properties: &mut Map<String, Value>, required: &[Value]) {
    for (name, property) in properties {
        let property = property.as_object_mut().unwrap();
        if !required.contains(&name.as_str().into()) {
            if let Some(Value::Array(types)) = property.get("type").cloned() {
                property.insert("type".to_owned(), types[0].clone());
            }
            if let Some(Value::Array(mut schemas)) = property.remove("anyOf") {
                property.append(schemas[0].as_object_mut().unwrap());
            }
        }
        let value = match property.get_mut("items") {
            Some(Value::Object(items)) => items,
            _ => property,
        };
        if value.get("type") == Some(&"number".into()) && name != "ahead_ns" {
            value.insert("minimum".to_owned(), 0.into());
            if name.ends_with("_ratio") {
                value.insert("maximum".to_owned(), 1.into());
            }
        }
    }
}

#[test]
fn committed_schema_is_what_the_types_give() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/result.schema.json");
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("DRAY_SCHEMA_WRITE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let is_committed = std::fs::read_to_string(path).unwrap() == text;
    assert!(is_committed, "remake it: DRAY_SCHEMA_WRITE=1 cargo test -p dray-results schema");
}

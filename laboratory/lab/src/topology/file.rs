//! A topology file as written: each value with its position.

use serde::Deserialize;
use toml::Spanned;

/// An error and its byte offset.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) at: Option<usize>,
    pub(super) what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) containers: Vec<Spanned<Container>>,
    #[serde(default)]
    pub(super) links: Vec<Spanned<Link>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Container {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) cpus: Vec<Spanned<usize>>,
    pub(super) run: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub(super) kind: Spanned<String>,
    pub(super) ends: Spanned<Vec<Spanned<String>>>,
    pub(super) network: Option<Spanned<String>>,
    pub(super) addresses: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) mtu: Option<Spanned<u32>>,
    pub(super) cpu: Option<Spanned<usize>>,
    pub(super) parent: Option<Spanned<String>>,
    pub(super) functions: Option<Spanned<Functions>>,
    #[serde(default)]
    pub(super) xdp_programs: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Functions {
    pub(super) macs: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) vlan: Option<Spanned<u16>>,
    pub(super) spoof_check: Option<bool>,
    pub(super) trust: Option<bool>,
}

impl File {
    pub(super) fn read(text: &str) -> Result<Self, Wrong> {
        let deserializer = toml::Deserializer::parse(text).map_err(|error| wrong("", &error))?;
        serde_path_to_error::deserialize(deserializer)
            .map_err(|error| wrong(&error.path().to_string(), error.inner()))
    }
}

fn wrong(key: &str, error: &toml::de::Error) -> Wrong {
    let what = dray_text::parse_error(key, error.message());
    Wrong { at: error.span().map(|span| span.start), what }
}

/// Returns an error about `value`, for `map_err`.
pub(super) fn at<T>(value: &Spanned<T>, what: impl Into<String>) -> Wrong {
    Wrong { at: Some(value.span().start), what: what.into() }
}

//! The part of a URI that names a network interface.

use crate::uri::query::{Query, UriError};

/// `IFNAMSIZ` without the terminating zero.
const NAME_MAX: usize = 15;

/// Returns the interface that the body of a URI names.
pub(crate) fn parse(body: &str, query: &Query<'_>, scheme: &str) -> Result<String, UriError> {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b'?';
    if body.is_empty() || body.len() > NAME_MAX || !body.bytes().all(plain) {
        return Err(query.error(format!(
            "{body:?} is not an interface: give a name of 1 to {NAME_MAX} characters, for example \
             {scheme}:eth0"
        )));
    }
    Ok(body.to_owned())
}

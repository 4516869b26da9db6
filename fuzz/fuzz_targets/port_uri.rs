//! Text from the command line: parsed, or refused in one line. A parsed URI is written as text that
//! means the same.
#![no_main]

use dray_port::PortUri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(uri) = text.parse::<PortUri>() {
        assert_eq!(uri.to_string().parse::<PortUri>(), Ok(uri));
    }
    if let Some(numbers) = dray_lab::placement::parse_ranges(text) {
        let again = dray_lab::placement::parse_ranges(&dray_lab::placement::ranges(&numbers));
        assert_eq!(again, Some(numbers));
    }
});

//! The switch against a model.

mod checksums;
mod model;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn forwarding_agrees_with_the_model(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        model::run(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_checksum_leaves_worse_than_it_came(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        checksums::run(&bytes);
    }
}

/// The fuzzer's seeds also run as a test of their own.
#[test]
fn seeds_agree_with_the_model() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/forwarding");
    let seeds: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(seeds.len() >= 7);
    for seed in seeds {
        match std::fs::read(seed.unwrap().path()).unwrap().split_first().unwrap() {
            (0xff, rest) => checksums::run(rest),
            (first, rest) => model::run(&[&[*first], rest].concat()),
        }
    }
}

//! Frames of any bytes at both interfaces, as in the fuzz target `upf`.

mod model;

use proptest::prelude::*;

/// Returns the fuzzer's seeds with their names.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/upf");
    let seeds = std::fs::read_dir(folder).unwrap().map(|seed| {
        let path = seed.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
    });
    seeds.collect()
}

#[test]
fn seeds_agree_with_the_model() {
    let seeds = seeds();
    assert!(seeds.len() >= 10);
    for (name, seed) in seeds {
        println!("{name}");
        model::run(&seed);
    }
}

/// Each seed exercises something behind valid checksums: frames are forwarded, answered, buffered,
/// reassembled, or refused all the same.
#[test]
fn each_seed_reaches_its_purpose() {
    for (name, seed) in seeds() {
        let seen = model::run(&seed);
        let is_there = match name.split('_').next().unwrap() {
            "up" | "down" => seen.forwarded > 0,
            "kept" => seen.kept > 0,
            "fragments" => seen.reassembled > 0 && seen.forwarded > 0,
            "router" => seen.advertised > 0,
            "indication" => seen.indications > 0,
            "reply" => seen.replies > 0,
            "refused" => seen.control + seen.replies == 0,
            "learn" => seen.forwarded > 0 && seen.control > 0,
            other => panic!("{name}: unknown prefix {other}"),
        };
        assert!(is_there, "{name}: {seen:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn mutated_seeds_agree_with_the_model(
        seed in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        more in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let seeds = seeds();
        let mut bytes = seed.get(&seeds).1.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.extend(more);
        model::run(&bytes);
    }
}

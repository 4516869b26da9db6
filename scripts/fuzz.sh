#!/usr/bin/env bash
# Fuzzes each target for SECONDS_EACH seconds. Needs a nightly toolchain; cargo-fuzz is installed
# into target/tools if it is missing.
set -euo pipefail

cd "$(dirname "$0")/.."
seconds=${SECONDS_EACH:-60}
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzzing needs a nightly toolchain: rustup toolchain install nightly" >&2
    exit 1
fi
export PATH=$PWD/target/tools/bin:$PATH
command -v cargo-fuzz >/dev/null || cargo install --quiet --root target/tools cargo-fuzz
for target in ${TARGETS:-$(cargo +nightly fuzz list)}; do
    echo "== $target"
    # New inputs are saved in the first directory; the second is committed and only read.
    corpora=("fuzz/corpus/$target")
    mkdir -p "${corpora[0]}"
    [ ! -d "fuzz/seeds/$target" ] || corpora+=("fuzz/seeds/$target")
    cargo +nightly fuzz run "$target" "${corpora[@]}" -- \
        -max_total_time="$seconds" -print_final_stats=1
done

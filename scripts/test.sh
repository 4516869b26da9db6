#!/usr/bin/env bash
# Runs all checks, then prints the number of passed, failed and skipped tests.
set -uo pipefail

cd "$(dirname "$0")/.."
log=$(mktemp)
skipped=$(mktemp)
trap 'rm -f "$log" "$skipped"' EXIT
status=0

step() {
    echo "== $*"
    "$@" || status=1
}

# Everything is built once: incremental files would be a third of the disk space used.
export CARGO_INCREMENTAL=0
step cargo fmt --all --check
step scripts/import-cycles.py
step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# The data plane alone.
step cargo clippy --package dray --bins --no-default-features --locked --quiet -- -D warnings
export DRAY_SKIPPED=$skipped
# End-to-end tests examine the whole machine and must run one at a time: cargo runs one test program at
# a time, and a lock serializes the tests in each.
echo "== cargo test"
cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log" || status=1
unset DRAY_SKIPPED
# The program as `make build` links it, in an empty root directory.
step scripts/test-static.sh
# Memory ordering of rings, in a separate build.
step env RUSTFLAGS="--cfg loom" cargo test --package dray-ring --release --test loom --locked \
    --quiet --target-dir target/loom
step cargo check --manifest-path fuzz/Cargo.toml --locked --quiet --target-dir target/fuzz-check
step env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked --quiet

sum() { grep -E '^test result:' "$log" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }
passed=$(sum passed)
failed=$(sum failed)
skips=$(wc -l <"$skipped")
if [ "$skips" -gt 0 ]; then
    echo "Skipped:"
    sed 's/^/  /' "$skipped"
fi
# cargo counts a skipped test as passed, because it returns early.
echo "$((passed - skips)) passed, $failed failed, $skips skipped"
[ "$status" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]

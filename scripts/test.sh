#!/usr/bin/env bash
# Runs every check and closes with how many tests passed, failed and were skipped.
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

# All is built once: what an incremental build keeps would be a third of the disk that this takes.
export CARGO_INCREMENTAL=0
step cargo fmt --all --check
step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
export DRAY_SKIPPED=$skipped
# The end-to-end tests look at the whole machine: one test program at a time, which is what cargo
# does, and one test at a time within each, which they see to themselves.
echo "== cargo test"
cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log" || status=1
unset DRAY_SKIPPED
# As `make build` links the program: it runs where there is nothing else.
step scripts/test-static.sh
# The memory ordering of rings, in a build of its own.
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
# A skipped test returned early and counts as passed for cargo.
echo "$((passed - skips)) passed, $failed failed, $skips skipped"
[ "$status" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]

#!/usr/bin/env bash
# Runs all checks, then prints the number of passed, failed and skipped tests.
set -uo pipefail

cd "$(dirname "$0")/.."
dir=$(mktemp -d)
log=$dir/log
lints_log=$dir/lints
touch "$log" "$lints_log" "$dir/skipped"
export DRAY_SKIPPED=$dir/skipped
lints=
# What this script started ends with it.
trap '[ -z "$lints" ] || kill -- "-$lints" 2>/dev/null; rm -rf "$dir"' EXIT
status=0

step() {
    local began=$SECONDS
    echo "== $*"
    "$@" || status=1
    echo "   $((SECONDS - began)) s"
}

# Builds that start nothing. The documentation's examples are tests: their results count.
lints() {
    step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
    # The data plane alone.
    step cargo clippy --package dray --bins --no-default-features --locked --quiet -- -D warnings
    # The driver for Kubernetes, a workspace of its own; its tests run below.
    step cargo clippy --manifest-path k8s/Cargo.toml --all-targets --locked --quiet -- -D warnings
    step build "$dir/k8s" --manifest-path k8s/Cargo.toml
    # Memory ordering of rings, in a separate build.
    step env RUSTFLAGS="--cfg loom" cargo test --package dray-ring --release --test loom --locked \
        --quiet --target-dir target/loom
    step cargo check --manifest-path fuzz/Cargo.toml --locked --quiet --target-dir target/fuzz-check
    step env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked --quiet
    step cargo test --workspace --locked --doc
    exit "$status"
}

# Builds tests, the programs that they start, and libdray; what was built is written to a file. All packages at
# once, here as above: another choice of packages has other features, for which everything is compiled again.
build() {
    local built=$1
    cargo build --workspace --lib --bins --tests --examples --locked --quiet \
        --message-format=json-render-diagnostics "${@:2}" >"$built"
}

run_programs() { scripts/test-programs.py "$1" | tee -a "$log"; }

# Everything is built once: incremental files would be a third of the disk space used.
export CARGO_INCREMENTAL=0
export LIBDRAY=$PWD/target/debug/libdray.so
step cargo fmt --all --check
step cargo fmt --manifest-path k8s/Cargo.toml --check
step scripts/import-cycles.py
step scripts/import-cycles.py k8s
step build "$dir/programs"
# Simulations at the ends of links.
step make --no-print-directory --silent ns-3 LIBDRAY=$LIBDRAY
# Test programs wait most of the time: the other builds use what they leave of the CPUs.
set -m
(renice -n 19 -p $BASHPID >/dev/null && lints) >"$lints_log" 2>&1 &
lints=$!
set +m
step run_programs "$dir/programs"
wait "$lints" || status=1
lints=
cat "$lints_log"
step run_programs "$dir/k8s"
# The program as `make build` links it, in an empty root directory.
step scripts/test-static.sh

sum() { grep -hE '^test result:' "$log" "$lints_log" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }
passed=$(sum passed)
failed=$(sum failed)
skips=$(wc -l <"$DRAY_SKIPPED")
if [ "$skips" -gt 0 ]; then
    echo "Skipped:"
    sed 's/^/  /' "$DRAY_SKIPPED"
fi
# cargo counts a skipped test as passed, because it returns early.
echo "$((passed - skips)) passed, $failed failed, $skips skipped"
[ "$status" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]

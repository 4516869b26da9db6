#!/usr/bin/env bash
# Runs all checks, then prints the number of passed, failed and skipped tests.
set -uo pipefail

cd "$(dirname "$0")/.."
dir=$(mktemp -d)
log=$dir/log
vm_log=$dir/vm
skipped=$dir/skipped
touch "$log" "$vm_log" "$skipped"
vm=
# Virtual machines end with the program that started them.
trap '[ -z "$vm" ] || kill -- "-$vm" 2>/dev/null; rm -rf "$dir"' EXIT
status=0

step() {
    local began=$SECONDS
    echo "== $*"
    "$@" || status=1
    echo "   $((SECONDS - began)) s"
}

# Both choose among the tests of all packages: another choice of packages has other features, for which
# everything is compiled again.
run_tests() { DRAY_SKIPPED=$skipped cargo test --workspace --locked --no-fail-fast "$@"; }

test_vms() { run_tests --test 'vm*' >"$vm_log" 2>&1; }

# cargo runs one test program at a time, and a lock serializes the end-to-end tests in each: they examine
# the whole machine. The patterns match every name that `vm*` does not.
test_others() {
    (
        failed=0
        DRAY_SKIPPED=$skipped cargo test --manifest-path k8s/Cargo.toml --locked --no-fail-fast -- \
            --test-threads=1 || failed=1
        run_tests --lib --bins --examples --test '[!v]*' --test 'v[!m]*' || failed=1
        run_tests --doc || failed=1
        exit $failed
    ) 2>&1 | tee "$log"
}

# Everything is built once: incremental files would be a third of the disk space used.
export CARGO_INCREMENTAL=0
step cargo fmt --all --check
step scripts/import-cycles.py
step cargo test --workspace --locked --no-run --quiet
# Simulations at the ends of links.
step cargo build --package dray-capi --lib --locked --quiet
step make --no-print-directory --silent ns-3 LIBDRAY=target/debug/libdray.so
# Machines wait most of the time, and examine only themselves: the builds that test nothing in containers
# run beside them, in a process group with lower priority.
set -m
test_vms &
vm=$!
set +m
step nice cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# The data plane alone.
step nice cargo clippy --package dray --bins --no-default-features --locked --quiet -- -D warnings
# Memory ordering of rings, in a separate build.
step nice env RUSTFLAGS="--cfg loom" cargo test --package dray-ring --release --test loom --locked \
    --quiet --target-dir target/loom
# The driver for Kubernetes, a workspace of its own; its tests run below.
step nice cargo clippy --manifest-path k8s/Cargo.toml --all-targets --locked --quiet -- -D warnings
step nice cargo test --manifest-path k8s/Cargo.toml --locked --no-run --quiet
step nice cargo check --manifest-path fuzz/Cargo.toml --locked --quiet --target-dir target/fuzz-check
step nice env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked --quiet
step wait "$vm"
vm=
cat "$vm_log"
step test_others
# The program as `make build` links it, in an empty root directory.
step scripts/test-static.sh

sum() { grep -hE '^test result:' "$log" "$vm_log" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }
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

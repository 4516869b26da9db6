#!/usr/bin/env bash
# Runs all checks, then prints the number of passed, failed and skipped tests.
set -uo pipefail

cd "$(dirname "$0")/.."
dir=$(mktemp -d)
built=$dir/built
log=$dir/log
vm_log=$dir/vm
touch "$log" "$vm_log" "$dir/skipped"
export DRAY_SKIPPED=$dir/skipped
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

# Builds tests, the programs that they start, and libdray, and adds them to the list of what was built. All
# packages at once, here as above: another choice of packages has other features, for which everything is compiled
# again.
build() {
    nice cargo build --workspace --lib --bins --tests --examples --locked --quiet \
        --message-format=json-render-diagnostics "$@" >>"$built"
}

test_vms() { scripts/test-programs.py "$built" vm >"$vm_log" 2>&1; }

test_others() { scripts/test-programs.py "$built" '!vm' | tee -a "$log"; }

test_documentation() { nice cargo test --workspace --locked --doc 2>&1 | tee -a "$log"; }

# Everything is built once: incremental files would be a third of the disk space used.
export CARGO_INCREMENTAL=0
export LIBDRAY=$PWD/target/debug/libdray.so
step cargo fmt --all --check
step cargo fmt --manifest-path k8s/Cargo.toml --check
step scripts/import-cycles.py
step scripts/import-cycles.py k8s
step build
# Simulations at the ends of links.
step make --no-print-directory --silent ns-3 LIBDRAY=$LIBDRAY
# Machines examine only themselves: builds that start nothing run beside them, with lower priority.
set -m
test_vms &
vm=$!
set +m
step nice cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# The data plane alone.
step nice cargo clippy --package dray --bins --no-default-features --locked --quiet -- -D warnings
# The driver for Kubernetes, a workspace of its own.
step nice cargo clippy --manifest-path k8s/Cargo.toml --all-targets --locked --quiet -- -D warnings
step build --manifest-path k8s/Cargo.toml
# Memory ordering of rings, in a separate build.
step nice env RUSTFLAGS="--cfg loom" cargo test --package dray-ring --release --test loom --locked \
    --quiet --target-dir target/loom
step nice cargo check --manifest-path fuzz/Cargo.toml --locked --quiet --target-dir target/fuzz-check
step nice env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked --quiet
step test_documentation
step wait "$vm"
vm=
cat "$vm_log"
step test_others
# The program as `make build` links it, in an empty root directory.
step scripts/test-static.sh

sum() { grep -hE '^test result:' "$log" "$vm_log" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }
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

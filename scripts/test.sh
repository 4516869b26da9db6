#!/usr/bin/env bash
# Runs tests, then prints the number of passed, failed and skipped ones.
# Usage: test.sh [all|GROUP...]: without arguments the tests that need no other programs; with `all` these, the tests
# of all groups, and lints; with names of groups (scripts/test-programs.py lists them) only their tests.
set -uo pipefail

cd "$(dirname "$0")/.."
# Tests start programs as other users, and in user namespaces.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null &&
    ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$PWD/scripts/test.sh"; then
    echo "test.sh: users other than root cannot enter $PWD, and tests start programs as such users:" \
        "clone to another directory, such as one below /var/tmp" >&2
    exit 1
fi
dir=$(mktemp -d)
built=$dir/built
log=$dir/log
lints_log=$dir/lints
touch "$log" "$lints_log" "$dir/skipped" "$dir/failed"
export DRAY_SKIPPED=$dir/skipped
lints=
# The builds end with this script.
trap '[ -z "$lints" ] || kill -- "-$lints" 2>/dev/null; rm -rf "$dir"' EXIT
status=0

step() {
    local TIMEFORMAT="   %0R s, %0U s of CPU time and %0S s in the kernel"
    echo "== $*"
    { time "$@" 2>&1; } 2>&1 && return
    status=1
    echo "$*" >>"$dir/failed"
}

# has GROUP: returns true if tests of the group run; `has basic`: if those run that belong to none.
groups=" ${*:-basic} "
has() { [[ $groups = *" $1 "* || $groups = *" all "* ]]; }

# Builds tests, the programs that they start, and libdray, and adds them to the list of what was built. All
# packages at once, here as in `make check`: another choice of packages has other features, for which everything is
# compiled again.
build() {
    cargo build --lib --bins --tests --locked --quiet --message-format=json-render-diagnostics "$@" >>"$built"
}

run_programs() { scripts/test-programs.py "$built" "$@" | tee -a "$log"; }

# What compiles everything in another way, apart from the tests' build; with `all`, also what `make check` looks at
# before each commit.
lints() {
    # Memory ordering of rings, in a separate build.
    step env RUSTFLAGS="--cfg loom" cargo test --package dray-ring --test loom --locked --quiet \
        --target-dir target/loom
    step cargo test --workspace --locked --doc
    if has all; then
        step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
        # The data plane alone.
        step cargo clippy --package dray --bins --no-default-features --locked --quiet -- -D warnings
        # Nothing is linked, so libFuzzer is not compiled.
        step env CUSTOM_LIBFUZZER_PATH=/nonexistent/libfuzzer.a \
            cargo check --manifest-path fuzz/Cargo.toml --target-dir target --locked --quiet
        # Examples need the dependencies of tests, with which those of libraries have the features that lints checked.
        step env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --lib --bins --examples --locked --quiet
    fi
    exit "$status"
}

export LIBDRAY=$PWD/target/debug/libdray.so
if has basic; then
    step cargo fmt --all --check
    step cargo fmt --manifest-path k8s/Cargo.toml --check
    step scripts/import-cycles.py
    step scripts/import-cycles.py k8s
    step scripts/plain-comments.sh
fi
step build --workspace --examples
if has basic; then
    # Tests wait most of the time: these builds get the rest of the CPUs.
    set -m
    (renice -n 19 -p $BASHPID >/dev/null && lints) >"$lints_log" 2>&1 &
    lints=$!
    set +m
    echo "script: scripts/test-static.sh" >>"$built"
fi
if has kubernetes; then
    # A workspace of its own, which shares compiled dependencies with the main one. One build for lints and tests:
    # clippy's driver compiles as rustc does.
    RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings \
        step build --manifest-path k8s/Cargo.toml --target-dir target
fi
# Simulations at the ends of links.
! has tools || step make --no-print-directory --silent ns-3 LIBDRAY="$LIBDRAY"
! has packages || echo "script: scripts/test-packages.sh" >>"$built"
! has engines || echo "script: scripts/test-static.sh crun" >>"$built"
step run_programs "$@"
if [ -n "$lints" ]; then
    step wait "$lints"
    lints=
    cat "$lints_log"
fi

sum() { grep -hE '^test result:' "$log" "$lints_log" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }
passed=$(sum passed)
failed=$(sum failed)
skips=$(wc -l <"$DRAY_SKIPPED")
if [ "$skips" -gt 0 ]; then
    echo "Skipped:"
    sed 's/^/  /' "$DRAY_SKIPPED"
fi
if grep -q '^not run: ' "$log"; then
    echo "Not run (make test-all runs them with the programs they need):"
    sed -n 's/^not run: /  /p' "$log"
fi
if [ "$status" != 0 ]; then
    echo "Failed steps:"
    sed 's/^/  /' "$dir/failed"
fi
# cargo counts a skipped test as passed, because it returns early.
echo "$((passed - skips)) passed, $failed failed, $skips skipped"
[ "$status" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]

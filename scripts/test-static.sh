#!/usr/bin/env bash
# Checks that the statically linked program runs in an empty root directory or, with `crun`, in a container.
# Usage: test-static.sh [crun]
set -euo pipefail

cd "$(dirname "$0")/.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
dray=$root/dray
# The library of the program is what the tests were built with: cargo would compile everything again, with the
# features that one package needs.
library=$(ls -t target/debug/deps/libdray_cli-*.rlib | head -1)
rustc --edition 2024 --crate-name dray -C target-feature=+crt-static -L dependency=target/debug/deps \
    --extern "dray_cli=$library" -o "$dray" cli/src/main.rs
ldd "$dray" 2>&1 | grep -q "statically linked\|not a dynamic" || { ldd "$dray"; exit 1; }
[ "$(id -u)" = 0 ] || { echo "skipped: containers need root" && exit 0; }
if [ "${1:-}" != crun ]; then
    chroot "$root" /dray --version
    exit
fi
results=$root/results.json
"$dray" bench --quick --trials 1 --duration 0.3 --runtime crun --technique veth/raw-mmsg --size 64 \
    --json "$results" --force
# Frames passed, and all counters agree.
grep -q '"counters_agree": *true' "$results"

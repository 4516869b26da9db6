#!/usr/bin/env bash
# Checks that the statically linked program runs in an empty root directory and in an engine's container.
set -euo pipefail

cd "$(dirname "$0")/.."
cargo rustc --package dray --bin dray --locked --quiet -- -C target-feature=+crt-static
dray=target/debug/dray
ldd "$dray" 2>&1 | grep -q "statically linked\|not a dynamic" || { ldd "$dray"; exit 1; }
[ "$(id -u)" = 0 ] || { echo "skipped: containers need root" && exit 0; }

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp "$dray" "$root/dray"
chroot "$root" /dray --version
rm "$root/dray"
results=$root/results.json
"$dray" bench --quick --trials 1 --duration 0.3 --runtime crun --technique veth/raw-mmsg --size 64 \
    --json "$results" --force
# Frames passed, and all counters agree.
grep -q '"counters_agree": *true' "$results"

#!/usr/bin/env bash
# The program, linked statically, runs alone in an empty root, and so it does in a container of an engine.
set -euo pipefail

cd "$(dirname "$0")/.."
cargo rustc --package dray --bin dray --locked --quiet -- -C target-feature=+crt-static
dray=target/debug/dray
ldd "$dray" 2>&1 | grep -q "statically linked\|not a dynamic" || { ldd "$dray"; exit 1; }
[ "$(id -u)" = 0 ] || { echo "not root: no containers" && exit 0; }

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp "$dray" "$root/dray"
chroot "$root" /dray --version
rm "$root/dray"
results=$root/results.json
"$dray" bench --quick --trials 1 --duration 0.3 --runtime crun --technique veth/raw-mmsg --size 64 \
    --json "$results"
# Frames passed, and no account differs from another.
grep -q '"counters_agree": *true' "$results"

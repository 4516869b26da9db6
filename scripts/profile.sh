#!/usr/bin/env bash
# Draws a flame graph of one role during a trial: results/ROLE.svg
set -euo pipefail

cd "$(dirname "$0")/.."
role=${ROLE:-sender}
technique=${TECHNIQUE:-veth/udp-mmsg}
size=${SIZE:-64}
export PATH=$PWD/target/tools/bin:$PATH
mkdir -p results

target/release/dray bench --technique "$technique" --size "$size" --duration 5 >/dev/null &
bench=$!
sleep 2
# The container's first process is `dray inside ROLE`.
pid=$(pgrep --parent $bench --full "inside $role\$") || {
    wait $bench || true
    echo "no role '$role' in $technique: give sender or receiver" >&2
    exit 1
}
perf record --quiet --event cpu-clock --freq 2000 -g --pid "$pid" --output results/perf.data sleep 4
wait $bench
perf script --input results/perf.data 2>/dev/null |
    inferno-collapse-perf 2>/dev/null |
    inferno-flamegraph --title "$role, $technique, $size B" >"results/$role.svg"
echo "results/$role.svg"

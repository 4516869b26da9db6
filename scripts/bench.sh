#!/usr/bin/env bash
# Measures the figures that release notes and the changelog quote.
set -euo pipefail

cd "$(dirname "$0")/.."
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
dray=target/release/dray
mkdir -p results

# Builds a program of benches/ and runs it with privileges.
bench() {
    local program
    program=$(cargo build --release --locked --quiet --package dray --bench "$1" \
        --message-format json | jq -r "select(.target.name == \"$1\") | .executable // empty")
    $sudo "$program"
}

echo "== 256 containers"
bench containers

echo "== Attachments of 250 pods, and rates between two"
bench cni

echo "== Idle switch, and wake-up latency"
bench switch

echo "== A forwarder in C, beside dray forward"
bench libdray

echo "== Comparison of switches, and round trips"
$sudo $dray bench switches --json results/switches.json --force
$sudo $dray bench rtt --json results/rtt.json --force

echo "== An offered rate of 100 kpps"
$sudo $dray bench --rate 100k --size 64 --duration 5 --json results/rate.json --force
jq --exit-status '[.results[].sent_pps | . > 99000 and . < 101000] | all' results/rate.json >/dev/null ||
    { echo "the sent rate differs from the offered rate by more than 1 %" >&2; exit 1; }

echo "== ara2019, table 1"
$sudo $dray bench ara2019-table1 --duration "${DURATION:-10}" --json results/ara2019-table1.json --force

echo "== casoni2013"
for experiment in casoni2013-serial casoni2013-parallel; do
    $sudo $dray bench $experiment --duration 5 --json results/$experiment.json --force
done

echo "== Third-party tools"
$sudo scripts/bench-tools.sh batch tcp

echo "== Shared-memory ports alone"
cargo bench -p dray-port --locked --quiet

echo "== User plane function alone"
cargo bench -p dray-upf --locked --quiet

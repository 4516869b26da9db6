#!/usr/bin/env bash
# The batched UDP sender against `iperf3 -u -b 0 -l 22` (64-byte frames): over one veth link, in one
# run, in turns. Prints frames sent per second by each, and the ratio; fails below 1.3.
set -euo pipefail

rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-3}
dray=$(realpath "$(dirname "$0")/../target/release/dray")

# Namespaces of our own, by names that nobody else has.
a=dray-a-$$
b=dray-b-$$
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null' EXIT
ip netns add "$a"
ip netns add "$b"
ip link add eth0 netns "$a" type veth peer name eth0 netns "$b"
number=1
for namespace in "$a" "$b"; do
    ip -n "$namespace" addr add "198.18.0.$number/30" dev eth0
    ip -n "$namespace" link set lo up
    ip -n "$namespace" link set eth0 up
    number=$((number + 1))
done

# The last two CPUs that we may use: the sender's and the receiver's.
mapfile -t cpus < <(taskset -pc $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i}' | tail -n 2)
sender=${cpus[-1]}
receiver=${cpus[0]}

iperf3_pps() {
    ip netns exec "$b" taskset -c "$receiver" iperf3 -s -1 >/dev/null &
    local server=$!
    sleep 0.5
    ip netns exec "$a" taskset -c "$sender" \
        iperf3 -c 198.18.0.2 -u -b 0 -l 22 -t "$seconds" -J |
        jq '.end.sum.packets / .end.sum.seconds | floor'
    wait $server
}

dray_pps() {
    ip netns exec "$b" "$dray" receive --cpu "$receiver" --duration $((seconds + 1)) \
        --port 'udp:198.18.0.2:9000-198.18.0.1:9000?batch=64&wait=poll' >/dev/null &
    local server=$!
    sleep 0.5
    ip netns exec "$a" "$dray" send --cpu "$sender" --duration "$seconds" --size 64 --json \
        --port 'udp:198.18.0.1:9000-198.18.0.2:9000?batch=64' |
        jq '.send | .sent * 1e9 / .elapsed_ns | floor'
    wait $server
}

printf '%-6s %14s %14s %7s\n' round iperf3 "dray udp-mmsg" ratio
for round in $(seq "$rounds"); do
    theirs=$(iperf3_pps)
    ours=$(dray_pps)
    echo "$round $theirs $ours"
done | awk '
    { printf "%-6s %10d pps %10d pps %7.2f\n", $1, $2, $3, $3 / $2; fflush()
      theirs += $2; ours += $3 }
    END { printf "%-6s %10d pps %10d pps %7.2f\n", "mean", theirs / NR, ours / NR, ours / theirs
          exit ours / theirs < 1.3 }'

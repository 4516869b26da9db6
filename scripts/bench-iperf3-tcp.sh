#!/usr/bin/env bash
# Our TCP streams against iperf3: over one veth link, in one run, in turns (A B A B). Prints the goodput
# of each in Gb/s, and the ratio; fails where the means are more than 10 % apart.
set -euo pipefail

rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-5}
streams=${STREAMS:-1}
mtu=${MTU:-1500}
dray=$(realpath "$(dirname "$0")/../target/release/dray")

# Namespaces of our own, by names that nobody else has.
a=dray-a-$$
b=dray-b-$$
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null' EXIT
ip netns add "$a"
ip netns add "$b"
ip link add eth0 mtu "$mtu" netns "$a" type veth peer name eth0 mtu "$mtu" netns "$b"
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

# Both say what the receiver got, without the first second.
iperf3_bps() {
    ip netns exec "$b" taskset -c "$receiver" iperf3 -s -1 >/dev/null &
    local server=$!
    sleep 0.5
    ip netns exec "$a" taskset -c "$sender" \
        iperf3 -c 198.18.0.2 -t "$seconds" -O 1 -P "$streams" -J | jq '.end.sum_received.bits_per_second | floor'
    wait $server
}

dray_bps() {
    ip netns exec "$b" "$dray" receive --cpu "$receiver" --sampled --json \
        --duration $((seconds + 3)) --port tcp:198.18.0.2:9000 >"$report" 2>/dev/null &
    local server=$!
    sleep 0.5
    ip netns exec "$a" "$dray" send --cpu "$sender" --duration $((seconds + 1)) \
        --flows "$streams" --port tcp:198.18.0.2:9000 >/dev/null
    wait $server
    # Whole seconds in which there was something; not the first one, nor the last.
    jq '[.stream_receive.samples as $s | range(1; $s | length) | {bytes: ($s[.].bytes - $s[. - 1].bytes),
        ns: ($s[.].at_ns - $s[. - 1].at_ns)} | select(.bytes > 0)] | .[2:-1]
        | (map(.bytes) | add) * 8e9 / (map(.ns) | add) | floor' "$report"
}

report=$(mktemp)
printf '%-6s %16s %16s %7s\n' round iperf3 "dray tcp" ratio
for round in $(seq "$rounds"); do
    theirs=$(iperf3_bps)
    ours=$(dray_bps)
    echo "$round $theirs $ours"
done | awk '
    { printf "%-6s %11.2f Gb/s %11.2f Gb/s %7.2f\n", $1, $2 / 1e9, $3 / 1e9, $3 / $2; fflush()
      theirs += $2; ours += $3 }
    END { printf "%-6s %11.2f Gb/s %11.2f Gb/s %7.2f\n", "mean", theirs / NR / 1e9, ours / NR / 1e9, ours / theirs
          exit ours / theirs < 0.9 || ours / theirs > 1.1 }'
rm -f "$report"

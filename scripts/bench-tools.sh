#!/usr/bin/env bash
# Compares dray's figures with those of third-party tools, alternating between them (A B A B) over one
# veth link. Fails if a ratio is outside its limits.
#
# Usage: bench-tools.sh [udp|tcp|rtt|testpmd|batch|udp-max]...; default: all but udp-max
#   udp      iperf3 -u, full frames at a fixed rate (RATE=40000 per second): received rate, within 10 %
#   tcp      iperf3: goodput, within 10 % (STREAMS="1 4", MTU=1500)
#   rtt      sockperf ping-pong: median round trip of 64-byte frames over UDP, within 15 %
#   testpmd  port counters of DPDK's testpmd as a switch: exactly equal
#   udp-max  udp at maximum rate, for information: iperf3 makes more system calls per datagram
#   batch    64-byte frames by sendmmsg against iperf3 -u -l 22 (one datagram per call): at least 1.3 times
# ROUNDS=5 rounds of SECONDS_EACH=3 seconds; DRAY=target/release/dray.
set -euo pipefail

rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-3}
rate=${RATE:-40000}
mtu=${MTU:-1500}
dray=$(realpath "${DRAY:-$(dirname "$0")/../target/release/dray}")

# Private namespaces with unique names.
a=dray-a-$$
b=dray-b-$$
folder=$(mktemp -d)
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$folder"' EXIT
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

# The last two available CPUs, for the sender and the receiver.
mapfile -t cpus < <(taskset -pc $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i}' | tail -n 2)
sender=${cpus[-1]}
receiver=${cpus[0]}

# Starts the receiver or responder in the other namespace; sets $server to its PID.
serve() {
    ip netns exec "$b" taskset -c "$receiver" "$@" >"$folder/there" 2>"$folder/there.err" &
    server=$!
    sleep 0.5
}

# Runs the sender; on failure prints its last output.
ask() {
    if ! ip netns exec "$a" taskset -c "$sender" "$@" >"$folder/here" 2>"$folder/here.err"; then
        echo "failed: $*" >&2
        tail -n 5 "$folder/here" "$folder/here.err" "$folder/there.err" >&2
        kill $server 2>/dev/null || true
        return 1
    fi
    # iperf3's server exits with an error when its client disconnects.
    wait $server || true
}

# Rate at dray's receiver over whole seconds without the first and the last; $1: bytes or frames.
per_second() {
    jq --arg figure "$1" '[.[].samples as $s | range(1; $s | length)
            | {n: ($s[.][$figure] - $s[. - 1][$figure]), ns: ($s[.].at_ns - $s[. - 1].at_ns)}
            | select(.n > 0)]
        | if length > 3 then .[1:-1] else . end
        | (map(.n) | add) * 1e9 / (map(.ns) | add) | floor' "$folder/there"
}

iperf3_udp() { # $1: bytes of payload, $2: datagrams per second or 0; prints the received rate
    serve iperf3 -s -1
    ask iperf3 -c 198.18.0.2 -u -b $(($2 * $1 * 8)) -l "$1" -t "$seconds" -J
    jq '.end.sum | (.packets - .lost_packets) / .seconds | floor' "$folder/here"
}

dray_udp() { # $1: bytes of payload, $2: options of the ports, then options of the sender; prints the same
    serve "$dray" receive --sampled --json --duration $((seconds + 2)) \
        --port "udp:198.18.0.2:9000-198.18.0.1:9000$2"
    ask "$dray" send --duration "$seconds" --size $((42 + $1)) \
        --port "udp:198.18.0.1:9000-198.18.0.2:9000$2" "${@:3}"
    per_second frames
}

iperf3_tcp() { # $1: streams; prints received bits per second, without the first second
    serve iperf3 -s -1
    ask iperf3 -c 198.18.0.2 -t "$seconds" -O 1 -P "$1" -J
    jq '.end.sum_received.bits_per_second | floor' "$folder/here"
}

dray_tcp() { # $1: streams; prints the same
    serve "$dray" receive --sampled --json --duration $((seconds + 3)) --port tcp:198.18.0.2:9000
    ask "$dray" send --duration $((seconds + 1)) --flows "$1" --port tcp:198.18.0.2:9000
    echo $((8 * $(per_second bytes)))
}

sockperf_rtt() { # prints the median round trip in nanoseconds
    serve timeout $((seconds + 2)) sockperf server --ip 198.18.0.2 --port 9001
    ask sockperf ping-pong --ip 198.18.0.2 --port 9001 --msg-size 22 --time "$seconds" --full-rtt
    awk '/percentile 50.000/ {print int($NF * 1000)}' "$folder/here"
}

dray_rtt() {
    serve "$dray" echo --duration $((seconds + 2)) --port udp:198.18.0.2:9000-198.18.0.1:9000
    ask "$dray" ping --duration "$seconds" --port udp:198.18.0.1:9000-198.18.0.2:9000
    sed -n 's/.* p50 \([0-9.]*\).*/\1/p' "$folder/here" | awk '{print int($1 * 1000)}'
}

# $1: title, $2: unit, $3: divisor to that unit, $4 and $5: minimum and maximum ratio, $6: name of the
# other tool, $7 and $8: commands that print one figure of that tool and of dray.
compare() {
    printf '\n%s\n%-6s %16s %16s %7s\n' "$1" round "$6" dray ratio
    local round theirs ours
    for round in $(seq "$rounds"); do
        theirs=$($7) && ours=$($8) || return 1
        echo "$round $theirs $ours"
    done | awk -v unit="$2" -v scale="$3" -v least="$4" -v most="$5" '
        function line(name, theirs, ours) {
            printf "%-6s %11.2f %s %11.2f %s %7.2f\n", name, theirs / scale, unit, ours / scale, unit,
                ours / theirs
            fflush()
        }
        { line($1, $2, $3); theirs += $2; ours += $3 }
        END {
            if (theirs == 0) exit 1
            line("mean", theirs / NR, ours / NR)
            ratio = ours / theirs
            if (ratio < least || ratio > most) {
                printf "FAILED: the ratio is outside %s to %s\n", least, most
                exit 1
            }
        }'
}

# Sends frames through testpmd and compares dray's counters with testpmd's port counters.
testpmd() {
    printf '\ntestpmd\n'
    "$dray" bench switches --technique testpmd --duration "$seconds" --trials "$rounds" \
        --json "$folder/here" >/dev/null 2>&1
    jq -er '.results | map(select(.trials)) | map("\(.technique) \(.frame_size) B: \(.sent) frames "
            + if .counters_agree then "by both counters" else "DISAGREE" end)
        | .[], if length == 0 then "no results" else empty end' "$folder/here"
    jq -e '.results | map(select(.trials) | .counters_agree) | length > 0 and all' "$folder/here" \
        >/dev/null
}

failed=0
[ $# -gt 0 ] || set -- udp tcp rtt testpmd batch
full=$((mtu - 28))
for word in "$@"; do
    case $word in
        udp) compare "UDP, $full bytes per datagram, $rate per second" kpps 1000 0.9 1.1 iperf3 \
            "iperf3_udp $full $rate" "dray_udp $full ?wait=block --rate $rate --burst 1" ;;
        udp-max) compare "UDP, $full bytes per datagram, at maximum rate" kpps 1000 0 100 iperf3 \
            "iperf3_udp $full 0" "dray_udp $full ?wait=block" ;;
        tcp) for streams in ${STREAMS:-1 4}; do
            compare "TCP, $streams concurrent streams" Gb/s 1000000000 0.9 1.1 iperf3 \
                "iperf3_tcp $streams" "dray_tcp $streams" || failed=1
        done ;;
        rtt) compare "UDP round trips" us 1000 0.85 1.15 sockperf sockperf_rtt dray_rtt ;;
        batch) compare "UDP, 22 bytes per datagram, 64 datagrams per call" kpps 1000 1.3 100 iperf3 \
            "iperf3_udp 22 0" "dray_udp 22 ?batch=64&wait=poll" ;;
        testpmd) testpmd ;;
        *) echo "bench-tools.sh: unknown comparison '$word': give udp, udp-max, tcp, rtt, testpmd or batch" >&2 && exit 2 ;;
    esac || failed=1
done
exit $failed

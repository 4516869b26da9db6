#!/usr/bin/env bash
# Measures every experiment of the five papers, each into its own file, and writes the page of their claims
# (docs/papers.md) from these files. Parts that are complete are skipped; one that was cut is resumed, so
# stop it at any time and run it again.
#
# usage: scripts/papers.sh [PART...]: the parts named, else all
#   FOLDER=results/papers   the results, a file for each part
#   PAGE=results/papers.md  the page
#   OPTIONS='--quick'       more options of dray bench, for every part; none: full length, a night
#   SAMPLE=docs/papers      also writes the sample that is committed: these results, reduced, and docs/papers.md
#   PIECE=0, PAUSE=0, LOCK= on a machine that others use: trials in pieces of at most PIECE seconds (0: whole)
#                           with PAUSE seconds between them, each while it holds the lock on the file LOCK
set -euo pipefail

cd "$(dirname "$0")/.."
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
dray=${DRAY:-target/release/dray}
folder=${FOLDER:-results/papers}
page=${PAGE:-results/papers.md}
piece=${PIECE:-0}
mkdir -p "$folder"

# Techniques of figure 6 here: those that this host lacks are in the results, with the reason.
upf=bridge/raw-mmsg,bridge-iptables/raw-mmsg,macvlan/bridge/raw-mmsg,ipvlan/l2/raw-mmsg,ipvlan/l3/raw-mmsg,\
sriov/raw-mmsg,veth/afxdp,direct,switch

# Endpoints of ns-3 on sockets, on shared memory and on netmap; `bare` without ns-3's stack, to show its cost.
ns3=veth/ns3-fd,bridge/ns3-fd,switch/patch/ns3-virtio,vpp/memif/ns3-memif,vale/ns3-netmap,veth/ns3-fd-bare,\
switch/patch/ns3-virtio-bare

# Each part: the name of its file, the experiment, and options that make it the paper's. The highest rate of figure 2,
# 20 Mpps, is below what some switches carry here: 30 Mpps as well.
parts="
ara2019-table1              ara2019-table1
ara2019-table1-burst-16     ara2019-table1 --burst 16
ara2019-fig2                ara2019-fig2
ara2019-fig2-512            ara2019-fig2 --size 512
ara2019-fig2-30             ara2019-fig2 --size 64,512 --rate 30000000
ara2019-fig3                ara2019-fig3
ara2019-fig3-burst-32       ara2019-fig3 --size 64 --burst 32
ara2019-fig3-burst-64       ara2019-fig3 --size 64 --burst 64
shyamkumar2022-fig6         shyamkumar2022-fig6 --technique $upf
shyamkumar2022-needwakeup   shyamkumar2022-needwakeup
shyamkumar2022-poll-mode    af-xdp --technique veth/afxdp,veth/dpdk-afxdp --size 512 --trials 8
claassen2016-local-tcp      claassen2016-local-tcp
claassen2016-local-udp      claassen2016-local-udp
claassen2016-switched-tcp   claassen2016-switched-tcp
claassen2016-switched-udp   claassen2016-switched-udp
casoni2013-incremental      casoni2013-incremental --technique veth,bridge,switch/learning,vale/netmap
casoni2013-serial           casoni2013-serial --technique veth,bridge,switch/learning,vale/netmap
casoni2013-parallel         casoni2013-parallel --technique veth,bridge,switch/learning,vale/netmap
casoni2013-sender-load      casoni2013-sender-load --technique veth,bridge,switch/learning,vale/netmap
casoni2013-vale             all --technique vale/netmap --size 64,1500
casoni2013-ns3              casoni2013-ns3 --technique $ns3
liang2016-noisy-neighbour   liang2016-noisy-neighbour
liang2016-latency           liang2016-latency
liang2016-setup             liang2016-setup
"

# Prints how far a file is: nothing if it is missing, `complete`, or the number of trials done.
state() {
    [ ! -s "$1" ] || jq -r '.incomplete.trials_done // "complete"' "$1"
}

# Runs the rest of dray's command line, cut after a piece if pieces are asked for.
run() {
    local words=("$dray" bench "$@")
    [ "$piece" = 0 ] || words=(timeout -s INT "$piece" "${words[@]}")
    [ -z "${LOCK:-}" ] || words=(flock -x "$LOCK" "${words[@]}")
    $sudo "${words[@]}"
}

# Measures one part until it is complete, or a piece brings no progress.
measure() {
    local name=$1 file=$folder/$1.json before now
    shift
    now=$(state "$file")
    while [ "$now" != complete ]; do
        before=$now
        echo "== $name${before:+, after $before trials}" >&2
        # Fails if it was cut, or if this host has none of the techniques: the file says so.
        if [ -n "$before" ]; then
            run --resume "$file" || true
        else
            # shellcheck disable=SC2086 # a list of options
            run "$@" ${OPTIONS:-} --json "$file" --force || true
        fi
        now=$(state "$file")
        [ "$piece" = 0 ] || sleep "${PAUSE:-0}"
        if [ "$now" = "$before" ]; then
            left+=("$name")
            return
        fi
        # Without pieces, a run that was cut was cut by the user.
        [ "$piece" != 0 ] || [ "$now" = complete ] || exit 1
    done
}

left=()
while read -r name words <&3; do
    [ -n "$name" ] || continue
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    # shellcheck disable=SC2086 # the words of a command
    measure "$name" $words
done 3<<<"$parts"

shopt -s nullglob
files=("$folder"/*.json)
[ ${#files[@]} != 0 ] || { echo "$folder: no results, so no page" >&2; exit 1; }
# Usage: write_page RESULTS... >PAGE
write_page() {
    cargo run --release --locked --quiet --package dray-papers -- "$@"
}

write_page "${files[@]}" >"$page"
echo "the papers' claims, held against these results: $page" >&2

# Without what each of up to 256 roles needed and spent, of which no claim is, with the command lines of other programs
# only in the first row of each technique, the times of one set-up only where claims are not of them, and without
# folders of this machine.
reduce='(.results | arrays) |= (reduce .[] as $row ({rows: [], known: {}};
        .known[$row.technique] as $known |
        .rows += [$row | if .programs and $known then .programs.commands = [] else . end] |
        .known[$row.technique] = true) | .rows) |
    (.results[]?, .streams[]?) |= if .cpu and .pairs > 1
    then .role_cores = {} | .cpu.roles = {} | del(.needs, .agreements) else . end |
    if .experiment != "liang2016-setup"
    then (.results[]?.needs | objects | .set_ups) |= .[:1] else . end |
    if .incomplete then .incomplete.journal = null else . end |
    (.results[]? | .programs? // empty | .commands[]) |=
        (sub("^[^ ]*/(?<name>[^ /]+)"; "\(.name)") | gsub("[^ ]*/(?<name>dray|dray-ns3) "; "\(.name) ")) |
    .command |= (gsub("[^ ]*/dray "; "dray ") | gsub("(?<=--json )[^ ]*/"; "results/papers/"))'
if [ -n "${SAMPLE:-}" ]; then
    mkdir -p "$SAMPLE"
    for file in "${files[@]}"; do
        jq --compact-output "$reduce" "$file" >"$SAMPLE/${file##*/}"
    done
    write_page "$SAMPLE"/*.json >"$SAMPLE.md"
fi

if [ ${#left[@]} != 0 ]; then
    echo "without progress: ${left[*]}; run this again, or give a larger PIECE" >&2
    exit 1
fi

#!/usr/bin/env bash
# Runs a test program where it sees only its own processes, network and state in /run: end-to-end tests examine
# the whole machine, and several of these programs run at the same time.
set -euo pipefail

[ "$(id -u)" = 0 ] || exec "$@"
if [ $$ != 1 ]; then
    # Files with a process's number in their names: each program has its own numbers.
    TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/XXXX")
    chmod 1777 "$TMPDIR"
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
    # The pool of huge pages is the machine's: whoever changes it takes a lock of the machine.
    mkdir -p /run/dray/locks
    unshare --mount --pid --fork --kill-child --mount-proc --ipc --net "$0" "$@"
    exit
fi
exec {locks}</run/dray/locks
mount -t tmpfs -o mode=755 run /run
mkdir -m 1777 /run/lock
mkdir -p /run/dray/locks
mount --bind "/proc/self/fd/$locks" /run/dray/locks
exec {locks}<&-
mount -t tmpfs -o mode=1777 shm /dev/shm
# A switch of the tests stays root, as where the package is not installed.
if grep -q ^dray: /etc/passwd; then
    grep -v ^dray: /etc/passwd >"$TMPDIR/passwd"
    mount --bind "$TMPDIR/passwd" /etc/passwd
fi
ip link set lo up
# Not by exec: this shell waits for processes whose parent has ended.
"$@"

#!/usr/bin/env bash
# Makes packages of the programs that tests have built (target/debug), checks them with lintian, and installs, runs and
# purges them in Debian 12 and 13, each in a root directory and namespaces of its own, with systemd as the first process
# and without a network.
set -euo pipefail

cd "$(dirname "$0")/.."
systems=/var/cache/dray/debian
if [ $# = 0 ]; then
    [ "$(id -u)" = 0 ] || { echo "skipped: root directories need root" && exit 0; }
    [ -d $systems ] || { echo "skipped: scripts/setup-packages.sh systems has not run" && exit 0; }
    work=$(mktemp -d)
    group=
    end() {
        [ -z "$group" ] || rmdir "$group"/*/ "$group" 2>/dev/null || true
        umount "$work/groups" 2>/dev/null || true
        rm -rf "$work"
    }
    trap end EXIT
    scripts/deb.sh "$work/debs" dev --fast
    lintian --allow-root --fail-on error "$work"/debs/*.deb
    mkdir "$work/groups"
    mount -t cgroup2 dray "$work/groups"
    for suite in bookworm trixie; do
        began=$SECONDS
        # systemd is the root of the control groups that it sees.
        group=$work/groups/dray-packages-$suite-$$
        mkdir "$group"
        timeout --kill-after=5 100 bash -c 'echo $BASHPID >"$1/cgroup.procs" && shift && exec "$@"' bash "$group" \
            unshare --mount-proc --pid --fork --kill-child --ipc --uts --net --cgroup "$0" "$suite" "$work"
        find "$group" -mindepth 1 -depth -type d -exec rmdir {} +
        rmdir "$group"
        group=
        echo "$suite: installed, run, purged: $((SECONDS - began)) s"
    done
    exit
fi

suite=$1 work=$2
log=$work/log
: >"$log"
fail() {
    tail -n 40 "$log" >&2
    # Without the kernel's messages, which are the whole machine's.
    ! inside journalctl --no-pager --lines 60 _TRANSPORT=journal + _TRANSPORT=stdout + _TRANSPORT=syslog ||
        cat "$log" >&2
    echo "test-packages.sh: $suite: $*" >&2
    exit 1
}
mkdir -p "$work/layers"
mount -t tmpfs dray "$work/layers"
mkdir "$work/layers"/{changes,work,root}
root=$work/layers/root
mount -t overlay -o "lowerdir=$systems/$suite,upperdir=$work/layers/changes,workdir=$work/layers/work" dray "$root"
mount -t tmpfs -o mode=755 dray "$root/run"
mount -t sysfs dray "$root/sys"
mount -t cgroup2 dray "$root/sys/fs/cgroup"
mkdir "$root/debs"
cp "$work"/debs/*.deb "$root/debs/"
ip link set lo up
ip link add eth0 type veth peer name eth1
ip link set eth0 up
ip link set eth1 up

# By pivot_root: the kernel makes no user namespaces for processes in a chroot.
# shellcheck disable=SC2016 # the inner shell's own
unshare --mount --pid --fork --kill-child bash -c 'mount -t proc dray "$1/proc" && cd "$1" && pivot_root . mnt &&
    umount -l /mnt && exec env -i container=dray PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --log-target=journal \
    --show-status=no' bash "$root" >"$log" 2>&1 </dev/null &
starts=$!
# inside COMMAND: runs it in that system; what it writes is shown if the test fails
inside() {
    nsenter --target "$(pgrep --parent $starts)" --mount --pid env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@" </dev/null >"$log" 2>&1
}
# must COMMAND: as above, and it must succeed
must() { inside "$@" || fail "$*"; }
soon() {
    for _ in {1..100}; do
        ! "$@" || return 0
        sleep 0.1
    done
    fail "$*"
}
# What there is, but for what the package manager and systemd write about any package and service.
written='^(debs|proc|run|sys|dev|tmp|etc/machine-id|var/(log|cache|tmp|lib/(dpkg|apt|systemd))'
written+='|etc/((passwd|group|g?shadow)-|ld\.so\.cache))([/ ]|$)'
state() {
    (cd "$root" && find . -xdev -type d -printf '%P %M %u\n' -o -printf '%P %M %u %l\n') | grep -Ev "$written" | sort
    cat "$root"/etc/{passwd,group}
    inside systemctl list-unit-files --no-legend --no-pager 'dray*' || true
    cat "$log"
}
has() { grep -q "$@" "$log" || fail "no $*"; }
switch() { inside systemctl "$1" dray-switch; }
# replace UNIT VERB...: ends the unit's process by `systemctl VERB`, and waits for the next one
replace() {
    local unit=$1 main
    main=$(inside systemctl show --property MainPID "$unit" && cat "$log")
    is_another() { inside systemctl show --property MainPID "$unit" && ! grep -qx "$main" "$log"; }
    must systemctl "${@:2}" "$unit"
    soon is_another
}

units=/usr/lib/systemd/system
soon inside systemctl is-active basic.target
before=$(state)
must apt-get install --yes --no-install-recommends $(cd "$root" && printf '/%s ' debs/*.deb)
must dray --version
must test /opt/cni/bin/dray-cni -ef /usr/bin/dray
# shellcheck disable=SC2016 # the inner shell's own
must sh -c 'cc -Wall -Werror /usr/share/doc/libdray-dev/examples/forward.c -o /tmp/forward \
    $(pkg-config --cflags --libs dray)'
must sh -c 'ldd /tmp/forward | grep libdray.so.0'
! inside /tmp/forward foo:eth0 null: || fail "a URI with a mistake is opened"
has 'foo:eth0'
must systemd-analyze verify --man=no $units/dray-switch.service $units/dray-upf.service
must systemd-analyze security --offline=true --threshold=20 $units/dray-switch.service
! switch is-active || fail "the switch runs after the installation"

# The switch: no privileges, all restrictions of its unit.
must systemctl start dray-switch
must dray switch add-port a vhost:/run/dray/a.sock
must dray switch ports
has 'vhost:/run/dray/a.sock *waiting'
must sh -c 'cat /proc/$(systemctl show --value --property MainPID dray-switch)/status'
has -P '^Uid:\t[1-9]'
has -P '^CapPrm:\t0*$'
must journalctl --no-pager --output cat --unit dray-switch DRAY_CONTROL=/run/dray/switch.sock
has '^switch started'
# A changed file: the port that was added by hand stays, and a mistake changes nothing.
cp "$root/etc/dray/switch.toml" "$work/switch.toml"
printf '[[ports]]\nname = "b"\nuri = "vhost:/run/dray/b.sock"\n' >>"$root/etc/dray/switch.toml"
must systemctl reload dray-switch
echo 'vlna = 7' >>"$root/etc/dray/switch.toml"
! switch reload || fail "a file with a mistake is applied"
must dray switch ports
has 'vhost:/run/dray/a.sock *waiting'
has 'vhost:/run/dray/b.sock *waiting'
must journalctl --no-pager --output cat --unit dray-switch
has '/etc/dray/switch.toml: line .*did you mean vlan?'
cp "$work/switch.toml" "$root/etc/dray/switch.toml"
must systemctl reload dray-switch
# A crash, and a restart: peers stay connected, and frames go on.
must dray switch add-port b vhost:/run/dray/b.sock
must systemd-run --unit receiver dray receive --port virtio:/run/dray/b.sock --duration 60
must systemd-run --unit sender dray send --port virtio:/run/dray/a.sock --rate 1k --duration 60
received() {
    inside dray switch stats b --json && grep -o '"tx_frames": *[0-9]*' "$log" | grep -o '[0-9]*$'
}
passes() { [ "$(received || echo 0)" -gt "$1" ]; }
soon passes 100
for event in 'kill --signal KILL' restart 'kill --signal KILL'; do
    sleep 0.2
    frames=$(received)
    # shellcheck disable=SC2086 # several words
    replace dray-switch $event
    soon switch is-active
    soon passes $((frames + 100))
    must dray switch ports --json
    [ "$(grep -o '"disconnects": *{}' "$log" | wc -l)" = 2 ] || fail "peers have reconnected after $event"
done
! inside sh -c 'journalctl --output cat --unit dray-switch | grep "not used"' || fail "$(cat "$log")"
must systemctl stop sender receiver
# It may be started five times within ten seconds.
must systemctl reset-failed dray-switch
# The watchdog.
must mkdir -p /etc/systemd/system/dray-switch.service.d
printf '[Service]\nWatchdogSec=1\n' >"$root/etc/systemd/system/dray-switch.service.d/test.conf"
must systemctl daemon-reload
must systemctl restart dray-switch
must systemctl kill --signal STOP dray-switch
is_restarted() { inside systemctl show --property NRestarts dray-switch && grep -q =1 "$log"; }
soon is_restarted
soon switch is-active
# With an interface.
cp deploy/systemd/dray-switch-uplinks.conf "$root/etc/systemd/system/dray-switch.service.d/test.conf"
printf '[[ports]]\nname = "up"\nuri = "raw:eth0"\n' >>"$root/etc/dray/switch.toml"
must systemctl daemon-reload
must systemctl restart dray-switch
must dray switch ports
has 'raw:eth0 *running'
must systemctl stop dray-switch
# The user plane function.
cp "$root/usr/share/doc/dray/examples/upf.toml" "$root/etc/dray/upf.toml"
must systemctl start dray-upf
must dray upf status
must systemctl show --property StatusText dray-upf
has sessions
# Sessions stay as they are, not as in the file, after a crash and a restart.
must dray upf sessions remove 1
for event in 'kill --signal KILL' restart; do
    # shellcheck disable=SC2086 # several words
    replace dray-upf $event
    soon inside dray upf sessions show 2
    ! inside dray upf sessions show 1 || fail "a removed session is there again after $event"
done
! inside sh -c 'journalctl --output cat --unit dray-upf | grep "not used"' || fail "$(cat "$log")"

rm -r "$root/etc/systemd/system/dray-switch.service.d" "$root/etc/dray/upf.toml"
must apt-get purge --yes dray libdray0 libdray-dev
after=$(state)
[ "$before" = "$after" ] || { diff <(echo "$before") <(echo "$after") >"$log" || fail "purge leaves something"; }
[ ! -e "$root/run/dray" ] || fail "purge leaves /run/dray"

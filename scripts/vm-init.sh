#!/bin/busybox sh
# First process of a lab's virtual machine: overlays an in-memory file system on the host's, which is
# shared read-only, and runs the script that the lab provides. The script's output goes to one virtio
# port and its exit status to another; laboratory/testvm/ has the other ends.
set -e
busybox() { /bin/busybox "$@"; }
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
for module in /modules/*; do
    busybox insmod "$module"
done
busybox mount -t tmpfs memory /memory
busybox mkdir /memory/upper /memory/work
busybox cp /bin/busybox /memory/upper/
busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 host /host
busybox mount -t overlay \
    -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /root
exec /bin/busybox switch_root /root /busybox sh -c '
    set -e
    busybox() { /busybox "$@"; }
    busybox mount -t proc proc /proc
    busybox mount -t sysfs sys /sys
    busybox mount -t devtmpfs dev /dev
    busybox mkdir -p /dev/pts /dev/shm /lib/modules
    busybox mount -t devpts -o ptmxmode=0666 pts /dev/pts
    busybox mount -t tmpfs shm /dev/shm
    busybox mount -t tmpfs run /run
    # Each folder has the modules of one kernel.
    for modules in /var/cache/dray/vm*/lib/modules; do
        [ ! -d "$modules/$(busybox uname -r)" ] || busybox mount -o bind "$modules" /lib/modules
    done
    port() {
        name=$(busybox grep -lx "$1" /sys/class/virtio-ports/*/name)
        name=${name%/name}
        echo "/dev/${name##*/}"
    }
    output=$(port output)
    busybox cat /sys/firmware/qemu_fw_cfg/by_name/opt/dray/script/raw >/run/script
    busybox chmod +x /run/script
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
    cd /root
    status=0
    /run/script </dev/null >"$output" 2>&1 || status=$?
    echo "exit $status" >"$(port status)"
    # Reboot, at which QEMU exits: faster than a shutdown.
    echo b >/proc/sysrq-trigger
'

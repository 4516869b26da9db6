# Makes the container `c1`, in memory.
. "$SETUPS/image.sh"
mount -t tmpfs -o mode=755 tmpfs /var/lib/lxc
mkdir /var/lib/lxc/c1
mv image /var/lib/lxc/c1/rootfs
# lxc-stop asks the first process to end by SIGPWR.
printf '#!/bin/sh\ntrap "exit 0" PWR\nsleep 1000 &\nwait\n' >/var/lib/lxc/c1/rootfs/sbin/init
chmod 755 /var/lib/lxc/c1/rootfs/sbin/init
cat >/var/lib/lxc/c1/config <<'CONFIG'
lxc.uts.name = c1
lxc.rootfs.path = dir:/var/lib/lxc/c1/rootfs
lxc.mount.auto = proc:mixed sys:ro
lxc.net.0.type = empty
lxc.cgroup.dir = dray-recipes/c1
CONFIG
# LXC does not start if the kernel has AppArmor and the host has never loaded LXC's profile.
if [ -e /sys/module/apparmor ]; then
    echo 'lxc.apparmor.profile = unconfined' >>/var/lib/lxc/c1/config
fi
